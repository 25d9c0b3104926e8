#!/usr/bin/env python3
"""Fits `backtest calibrate` to one run of a real vLLM server and scores the law on another. Called by `calibrate`.

One server; pairs of runs of seeded load, one right after the other, with other rates, other lengths and other arrivals. The
law is fitted to the first of a pair and scored on the second, which it never saw. A run begins and ends with an idle engine.
Times are the client's: a token is sent at the first of an answer and at its end alone (`--stream-interval`), so that neither
sending nor reading them takes the engine's core.

The machine is part of what is measured: before and after each run a request alone says how long a token takes it now, and
what everybody else took of its cores meanwhile is printed. A law can't know either.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import aiohttp

from server import BLOCK_TOKENS, Failed, VllmServer, check, write_model

# Small, so that two runs are over before the machine changes.
HIDDEN, LAYERS = 512, 4
SEQUENCES = 8
BLOCKS = 256
BUDGET = 512
LIMITS = [
    "--max-num-seqs", str(SEQUENCES), "--num-gpu-blocks-override", str(BLOCKS),
    "--max-num-batched-tokens", str(BUDGET), "--stream-interval", "1000",
]
STATED = ["--kv-tokens", str(BLOCKS * BLOCK_TOKENS), "--max-num-seqs", str(SEQUENCES), "--token-budget", str(BUDGET)]

# Of each pair: requests, requests a second, input and output tokens, uniform from the one to the other.
FIT = (300, 6.0, (20, 400), (10, 120))
OTHER = (250, 4.0, (20, 300), (20, 180))
PROBE = (100, 100)

TICKS = os.sysconf("SC_CLK_TCK")


def busy_ticks():
    """Of all cores: what wasn't idle."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal, *_ = map(int, stat.readline().split()[1:])
    return user + nice + system + irq + softirq + steal


def ticks_of(group):
    """User and system time of the processes of a group, ended children included."""
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            total += sum(map(int, fields[11:15]))
    return total


async def request(session, server, row, prompt, log):
    body = {
        "model": "tiny", "prompt": prompt, "max_tokens": row["output_tokens"], "ignore_eos": True,
        "temperature": 1.0, "stream": True,
    }
    row["arrived"] = time.monotonic()
    async with session.post(f"{server.base}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            row["last_token_seconds"] = time.monotonic()
            row.setdefault("first_token_seconds", row["last_token_seconds"])
    log.append(row)


async def drive(session, server, seed, requests, rate, inputs, outputs):
    """Poisson arrivals; the log in their order."""
    rng, log, running = random.Random(seed), [], []
    due = time.monotonic()
    for _ in range(requests):
        row = {"input_tokens": rng.randint(*inputs), "output_tokens": rng.randint(*outputs)}
        prompt = [rng.randrange(10, 300) for _ in range(row["input_tokens"])]
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        running.append(asyncio.create_task(request(session, server, row, prompt, log)))
        due += rng.expovariate(rate)
    await asyncio.gather(*running)
    return sorted(log, key=lambda row: row["arrived"])


def calibrate(program, log, *flags):
    done = subprocess.run(
        [program, "backtest", "calibrate", "--requests", log, *STATED, *flags], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Failed(f"calibrate: {done.stderr.strip()}")
    return done.stdout


async def probe(session, server):
    """Milliseconds a token of a request alone: the median of three."""
    times = []
    for _ in range(3):
        row, log = {"input_tokens": PROBE[0], "output_tokens": PROBE[1]}, []
        await request(session, server, row, [10] * PROBE[0], log)
        times.append((row["last_token_seconds"] - row["first_token_seconds"]) / (PROBE[1] - 1) * 1e3)
    return statistics.median(times)


async def run(session, server, name, seed, load, path):
    """One run, its log written."""
    before, begun = await probe(session, server), time.monotonic()
    busy, ours = busy_ticks(), ticks_of(server.process.pid)
    log = await drive(session, server, seed, *load)
    took = time.monotonic() - begun
    ours = (ticks_of(server.process.pid) - ours) / TICKS
    others = (busy_ticks() - busy) / TICKS - ours
    after = await probe(session, server)
    check(len(log) == load[0], name, seed=seed, requests=load[0], rate=f"{load[1]}/s", seconds=f"{took:.0f}",
          vllm_cores=f"{ours / took:.2f}", other_cores=f"{others / took:.2f}", token_alone=f"{before:.1f} to {after:.1f} ms")
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in log)


async def measure(arguments, folder):
    server = None
    # vLLM's server closes idle connections after five seconds, maybe as one is used again.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600), connector=connector) as session:
        try:
            # One core computes, so that the other is left to the API server and the load.
            environment = {"VLLM_CPU_OMP_THREADS_BIND": arguments.cores}
            model = write_model(folder, HIDDEN, LAYERS)
            server = VllmServer(arguments.venv, model, folder, 0, LIMITS, environment)
            if arguments.nice:
                os.setpriority(os.PRIO_PGRP, server.process.pid, arguments.nice)
            print(f"healthy after {await server.healthy(session):.0f} s", flush=True)
            await drive(session, server, 1, 20, 5.0, (20, 300), (5, 30))
            for pair in range(arguments.pairs):
                fit, other = logs(folder, pair)
                await run(session, server, f"pair {pair}, fit", 10 * pair + 1, FIT, fit)
                await run(session, server, f"pair {pair}, other", 10 * pair + 2, OTHER, other)
        finally:
            if server:
                server.kill()


def logs(folder, pair):
    return [os.path.join(folder, f"pair-{pair}-{which}.jsonl") for which in ["fit", "other"]]


def score(arguments, folder):
    """Fits on the first of each pair, prints the errors on the second."""
    beyond = []
    for pair in range(arguments.pairs):
        fit, other = logs(folder, pair)
        print(f"\n== pair {pair}: fitted\n{calibrate(arguments.scaler, fit)}")
        found = json.loads(calibrate(arguments.scaler, fit, "--json"))["law"]
        law = ",".join(str(found[term]) for term in
                       ["stepMs", "promptTokenUs", "sequenceUs", "contextTokenNs", "attendedPairNs"])
        print(f"== pair {pair}: scored on the run that it wasn't fitted to\n{calibrate(arguments.scaler, other, '--law', law)}")
        scores = json.loads(calibrate(arguments.scaler, other, "--law", law, "--json"))
        beyond.append(sum(abs(score["error"]) > 0.10 for score in scores))
    print("errors beyond 10 % of the nine, pair by pair:", ", ".join(map(str, beyond)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scaler", required=True, help="the keda-vllm-scaler binary")
    parser.add_argument("--venv", required=True, help="where vLLM is installed")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs")
    parser.add_argument("--logs", help="score the logs of this folder again: starts nothing")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--cores", default="0", help="which cores vLLM computes on")
    parser.add_argument("--nice", type=int, default=0, help="vLLM's priority, such as -10 (root)")
    arguments = parser.parse_args()
    folder = arguments.logs or tempfile.mkdtemp(prefix="vllm-calibrate-")
    try:
        if not arguments.logs:
            asyncio.run(measure(arguments, folder))
        score(arguments, folder)
    except Failed as failed:
        sys.exit(f"FAILED: {failed}; logs in {folder}")
    if arguments.keep:
        print(f"logs in {folder}")
    elif not arguments.logs:
        subprocess.run(["rm", "-rf", folder], check=False)


if __name__ == "__main__":
    main()
