#!/usr/bin/env python3
"""Puts load on two real vLLM servers and checks what the running scaler says of them. Called by `run`.

Phases: exact (known requests, then quiet: the token totals must be equal), saturate (more clients than slots: the answer
must rise), kill (one server dies under load: the answer must not fall), quiet (the hold passes: the answer must fall).
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import aiohttp

from server import Failed, VllmServer, check, free_port, write_model

TIER = "proof/tiny"
SLOTS = 4  # --max-num-seqs of each server
# Where this was measured a server is healthy after 48 s and 8 slots make 67 tokens a second. Four times as slow a machine
# can't keep what follows in its seconds, whatever the scaler does.
SLOWEST_START_SECONDS = 200
TOO_SLOW = 75
HOLD_SECONDS = 20
HOLD_UNKNOWN_SECONDS = 25
SCRAPE_SECONDS = 2

CONFIG = """
listen: {{grpc: "127.0.0.1:{grpc}", http: "127.0.0.1:{http}", health: "127.0.0.1:{health}"}}
tiers:
- name: tiny
  namespace: proof
  source: {{fixed: {{urls: [{urls}]}}}}
  scrape: {{interval: {interval}s, timeout: 4s, staleAfter: 12s, rateWindow: 10s}}
  replicas: {{min: 1, max: 8}}
  coldStart: 10s
  drain: 5s
  controlDelay: 5s
  capacity: {{inputTokensPerSecond: 2000, outputTokensPerSecond: 160, learn: false}}
  scaleDown: {{hold: {hold}s, maxStep: "100%"}}
  holdUnknown: {unknown}s
"""


class TooSlow(Exception):
    """Nothing can be said here."""


class Load:
    """Closed-loop clients over the servers that live, with an account of every token."""

    def __init__(self, session, servers):
        self.session, self.servers = session, list(servers)
        self.random = random.Random(7)
        self.input_tokens = self.output_tokens = self.requests = self.failed = 0
        self.clients = []
        self.wanted = False

    async def request(self, server, input_tokens, output_tokens):
        prompt = [self.random.randrange(10, 300) for _ in range(input_tokens)]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 1.0}
        try:
            async with self.session.post(f"{server.base}/v1/completions", json=body) as answer:
                answer.raise_for_status()
                usage = (await answer.json())["usage"]
        except (aiohttp.ClientError, asyncio.TimeoutError):
            self.failed += 1
            return
        self.input_tokens += usage["prompt_tokens"]
        self.output_tokens += usage["completion_tokens"]
        self.requests += 1

    async def client(self, number):
        while self.wanted:
            server = self.servers[number % len(self.servers)]
            await self.request(server, self.random.randrange(50, 300), self.random.randrange(60, 200))

    def start(self, clients):
        self.wanted = True
        self.clients = [asyncio.create_task(self.client(number)) for number in range(clients)]

    async def stop(self):
        self.wanted = False
        await asyncio.gather(*self.clients)
        self.clients = []

    async def give_up(self):
        self.wanted = False
        for client in self.clients:
            client.cancel()
        await asyncio.gather(*self.clients, return_exceptions=True)


class Scaler:
    def __init__(self, session, binary, folder, servers):
        self.session = session
        self.grpc, self.http, self.health = free_port(), free_port(), free_port()
        self.config = os.path.join(folder, "scaler.yaml")
        self.log = os.path.join(folder, "scaler.log")
        self.samples = []
        urls = ", ".join(f'"{server.base}/metrics"' for server in servers)
        with open(self.config, "w") as file:
            file.write(CONFIG.format(
                grpc=self.grpc, http=self.http, health=self.health, urls=urls, interval=SCRAPE_SECONDS,
                hold=HOLD_SECONDS, unknown=HOLD_UNKNOWN_SECONDS,
            ))
        subprocess.run([binary, "check", self.config], check=True, stdout=subprocess.DEVNULL)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([binary, "serve", "--config", self.config], stdout=log, stderr=log)

    async def tier(self):
        async with self.session.get(f"http://127.0.0.1:{self.http}/v1/tiers/{TIER}") as answer:
            return await answer.json() if answer.status == 200 else None

    async def watch(self):
        while True:
            try:
                status = await self.tier()
            except aiohttp.ClientError:
                status = None
            if status:
                self.samples.append((time.monotonic(), required(status), status))
            await asyncio.sleep(0.5)

    async def until(self, what, holds, seconds):
        begun = time.monotonic()
        status = None
        while time.monotonic() - begun < seconds:
            try:
                status = await self.tier()
            except aiohttp.ClientError:
                status = None
            if status and holds(status):
                check(True, what, after=f"{time.monotonic() - begun:.0f} s")
                return status
            await asyncio.sleep(0.5)
        check(False, what, waited=f"{seconds} s", required=status and required(status))

    def answers_since(self, moment):
        return [answer for at, answer, _ in self.samples if at >= moment]


def required(status):
    return status["decision"]["answer"].get("required")


def totals(status):
    return status["observation"]["totals"]


def loads(status):
    return [replica["load"] for replica in status["observation"]["replicas"] if replica["load"]]


def all_told(status):
    """A page of each replica, and one before it that its rates begin with: an overloaded server misses some of its scrapes."""
    told = [load for load in loads(status) if load["outputTokensPerSecond"] is not None]
    return len(told) == len(status["observation"]["replicas"]) == 2


async def gauge(session, server, name):
    async with session.get(f"{server.base}/metrics") as answer:
        found = re.search(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", await answer.text(), re.M)
    return float(found.group(1))


async def exact(scaler, load, servers, what):
    """Quiet: both accounts must be equal, to the token."""
    def equal(status):
        seen = totals(status)
        return (seen["inputTokens"], seen["outputTokens"]) == (load.input_tokens, load.output_tokens)
    status = await scaler.until(what, equal, 30)
    seen = totals(status)
    print(f"       {seen['inputTokens']:.0f} input and {seen['outputTokens']:.0f} output tokens in {load.requests} requests")


async def prove(arguments, folder):
    # A request that its client gives up is one whose tokens only vLLM has counted: nobody gives up.
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    servers, scaler, load, watching = [], None, None, None
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        try:
            model = write_model(folder)
            print("== two real vLLM servers", flush=True)
            limits = ["--max-num-seqs", str(SLOTS), "--num-gpu-blocks-override", "48"]
            servers = [VllmServer(arguments.venv, model, folder, number, limits) for number in range(2)]
            for server in servers:
                started = await server.healthy(session)
                print(f"  healthy after {started:.0f} s", flush=True)
                if started > SLOWEST_START_SECONDS:
                    raise TooSlow(f"vLLM started in {started:.0f} s; up to {SLOWEST_START_SECONDS} s can be judged")

            print("== the scaler", flush=True)
            scaler = Scaler(session, arguments.scaler, folder, servers)
            await scaler.until("both replicas ready, idle: 1 replica required",
                               lambda status: len(loads(status)) == 2 and required(status) == 1, 30)
            watching = asyncio.create_task(scaler.watch())

            print("== exact: 12 requests, then quiet", flush=True)
            load = Load(session, servers)
            for number in range(12):
                await load.request(servers[number % 2], 40 + 10 * number, 20 + number)
            await exact(scaler, load, servers, "token totals equal the sender's")

            print(f"== saturate: 24 clients on {2 * SLOTS} slots", flush=True)
            load.start(24)
            begun, tokens_before = time.monotonic(), load.output_tokens
            status = await scaler.until("required replicas rise above the two that are there",
                                        lambda status: required(status) and required(status) > 2, 60)
            await asyncio.sleep(15)
            before = [await gauge(session, server, "vllm:num_requests_waiting") for server in servers]
            status = await scaler.until("the rates of both replicas are known", all_told, 60)
            after = [await gauge(session, server, "vllm:num_requests_waiting") for server in servers]
            seen = sum(one["waiting"] for one in loads(status))
            # Pages are up to one interval old, and a request is over in seconds: near, not equal.
            check(abs(seen - (sum(before) + sum(after)) / 2) <= SLOTS * 2,
                  "waiting requests agree with the servers' own pages", scaler=seen, before=sum(before), after=sum(after))
            usage = [one["kvUsage"] for _, _, status in scaler.samples[-20:] for one in loads(status)]
            check(max(usage) > 0.3, "KV usage is seen", largest=f"{max(usage):.2f}")
            elapsed = time.monotonic() - begun
            rate = sum(one["outputTokensPerSecond"] for one in loads(status))
            mean = (totals(status)["outputTokens"] - tokens_before) / elapsed
            check(0.4 * mean < rate < 2.5 * mean, "the output rate is that of the run",
                  scaler=f"{rate:.0f}/s", mean_of_run=f"{mean:.0f}/s")
            await load.stop()
            await exact(scaler, load, servers, "token totals equal the sender's again")

            print("== kill: one server dies under load", flush=True)
            load.start(24)
            await scaler.until("required replicas are up again",
                               lambda status: required(status) and required(status) > 2, 60)
            await asyncio.sleep(3 * SCRAPE_SECONDS)
            killed_at, before = time.monotonic(), required(await scaler.tier())
            servers[1].kill()
            load.servers = servers[:1]
            await asyncio.sleep(HOLD_UNKNOWN_SECONDS - 5)
            during = scaler.answers_since(killed_at)
            check(None not in during and min(during) >= before, "no drop after the kill",
                  before=before, lowest=min(during), answers=len(during))

            print("== quiet: the hold passes", flush=True)
            await load.stop()
            await scaler.until("required replicas fall to 1", lambda status: required(status) == 1,
                               HOLD_UNKNOWN_SECONDS + 4 * HOLD_SECONDS)
            print(f"{load.requests} requests, {load.failed} failed (those on the killed server)")
        finally:
            if watching:
                watching.cancel()
            if load:
                await load.give_up()
            if scaler:
                scaler.process.terminate()
                try:
                    code = scaler.process.wait(15)
                    print(f"scaler ended with {code} on SIGTERM")
                except subprocess.TimeoutExpired:
                    scaler.process.kill()
                    raise Failed("the scaler doesn't end on SIGTERM") from None
            for server in servers:
                server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scaler", required=True, help="the keda-vllm-scaler binary")
    parser.add_argument("--venv", required=True, help="where vLLM is installed")
    parser.add_argument("--keep", action="store_true", help="keep the logs of a run that passes")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="vllm-proof-")
    try:
        asyncio.run(prove(arguments, folder))
    except TooSlow as slow:
        print(f"NOT JUDGED: this machine is too slow: {slow}", file=sys.stderr)
        sys.exit(TOO_SLOW)
    except Failed as failed:
        print(f"FAILED: {failed}; logs in {folder}", file=sys.stderr)
        scaler_log = os.path.join(folder, "scaler.log")
        if os.path.exists(scaler_log):
            with open(scaler_log) as file:
                sys.stderr.write("".join(file.readlines()[-30:]))
        sys.exit(1)
    print(f"real vLLM: passed{'; logs in ' + folder if arguments.keep else ''}")
    if not arguments.keep:
        subprocess.run(["rm", "-rf", folder], check=False)


if __name__ == "__main__":
    main()
