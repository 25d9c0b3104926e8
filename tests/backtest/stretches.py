"""Stretches of real load, and a backtest of them: what `forecast-table`, `ablation` and `stress-table` share."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys

DAY = 86_400
# Label, file, first day, days, and whether it counts in the mean.
STRETCHES = [
    ("azure 2024 conv", "azure2024_conv_week_recon_10s", 0, 7, True),
    ("WorldCup98 d20-33", "worldcup98_60s", 20, 14, True),
    ("WorldCup98 d55-62", "worldcup98_60s", 55, 8, True),
    ("m-large", "servegen_m_large_10s", 0, 14, True),
    ("SageServe C", "sageserve_C_prod_60s", 0, 7, True),
    ("crane 15", "crane_input15_15s", 0, 7, True),
    ("WorldCup98 d62-75", "worldcup98_60s", 62, 14, False),
    ("DeepSeek-R1", "servegen_deepseek_r1_10s", 0, 1, False),
]
# A tier's keys beyond the defaults; the rates are replaced by what a simulated replica carries.
TIER = {
    "namespace": "backtest",
    "source": '{fixed: {urls: ["http://127.0.0.1:1/metrics"]}}',
    "replicas": "{min: 1, max: 200}",
    "capacity": "{inputTokensPerSecond: 8000, outputTokensPerSecond: 700}",
    "scaleDown": "{maxStep: 100%}",
    "hpa": "{tolerance: 0}",
}
# What a late minute costs, in minutes of the whole tier; and the minutes of a week.
PRICE, WEEK = 30, 10_080


def cut(folder, name, first, days, target, times=1):
    """Writes some days of a trace, its time counted from their begin, so many times one after the other."""
    with open(target, "w", encoding="utf-8") as out:
        for time in range(times):
            with gzip.open(os.path.join(folder, f"{name}.csv.gz"), "rt") as rows:
                head = next(rows)
                if time == 0:
                    out.write(head)
                for row in rows:
                    seconds, rest = row.split(",", 1)
                    at = float(seconds) - first * DAY
                    if 0 <= at < days * DAY:
                        at += time * days * DAY
                        out.write(f"{at:g},{rest}" if at < 1e5 else f"{at:.1f},{rest}")


def policy(folder, name, keys):
    """Writes a policy file, some of its tier's keys given as YAML; its path."""
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"tiers:\n  - name: {name}\n")
        out.writelines(f"    {key}: {value}\n" for key, value in (TIER | keys).items())
    return path


def run(program, trace, flags, peak=20, cold_start=180):
    """What a backtest prints: so many replicas at peak, a cold start of so many seconds."""
    fleet = ["--peak-replicas", str(peak), "--cold-start", f"{cold_start}s"]
    command = [program, "backtest", "--trace", trace, *fleet, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def play(program, trace, flags, peak=20, cold_start=180):
    """The rows of a backtest."""
    return list(csv.DictReader(io.StringIO(run(program, trace, [*flags, "--csv"], peak, cold_start))))


def replica_rates(program, trace, flags):
    """Input and output tokens a second that a replica of the fleet serves."""
    flags = [*flags, "--days", "0.05", "--rivals", "static-peak", "--json"]
    rates = json.loads(run(program, trace, flags, peak=1))["replicaRates"]
    return rates["inputTokensPerSecond"], rates["outputTokensPerSecond"]


def score(row):
    """GPU-hours over the bound, late minutes a week, and J30 = ratio + 30 x late minutes a week / 10,080."""
    ratio, late = float(row["ratio"]), float(row["late_minutes_a_week"])
    return ratio, late, ratio + PRICE * late / WEEK
