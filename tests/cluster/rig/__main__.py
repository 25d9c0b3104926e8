"""Starts the cluster, runs the cases, prints the table. Called by `run`, inside the namespace."""

import argparse
import concurrent.futures
import importlib
import os
import pkgutil
import signal
import sys
import threading
import time

from . import cases, objects, processes
from .cluster import HERE, Cluster
from .fleet import Fleet

# Cases that run beside each other: more would make each other late on two cores.
LANES = 4
# A quiet machine's API server serves after 5 to 11 s. With one that needs 23 s, wake-ups took three times their bounds.
SLOWEST_START_SECONDS = 18
TOO_SLOW = 75


def load_suite():
    sys.path.insert(0, HERE)
    import suite

    for module in sorted(m.name for m in pkgutil.iter_modules(suite.__path__)):
        importlib.import_module(f"suite.{module}")


def chosen(options):
    kinds = cases.REGISTRY
    if options.only:
        unknown = [name for name in options.only.split(",") if name not in kinds]
        if unknown:
            sys.exit(f"no case named {', '.join(unknown)}; --list shows them")
        return [kinds[name] for name in options.only.split(",")]
    if options.broken:
        # One that must stay sound, too.
        return [kinds[name] for name in [*sorted(must_fail(options.broken)), "wake"] if "vllm" not in kinds[name].needs]
    if options.real_vllm:
        return [kind for kind in kinds.values() if "vllm" in kind.needs]
    left_out = {"vllm"} if objects.KNOWS_TOLERANCE else {"vllm", "tolerance"}
    return [kind for kind in kinds.values() if (kind.ci or not options.ci) and not kind.needs & left_out]


def must_fail(broken):
    """The cases that the first line of a patch names."""
    with open(os.path.join(HERE, "broken", f"{broken}.patch")) as patch:
        return set(patch.readline().removeprefix("# fails:").strip().split(","))


def shorten(value, width):
    text = str(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def show(row):
    print(f"  {'pass' if row.passed else 'FAIL'} {row.case}: {row.what}: expected {row.expected}, saw {shorten(row.seen, 400)}"
          f" ({row.seconds:.1f} s)", flush=True)


def table(rows):
    widths = (14, 66, 26, 30)
    print()
    print(f"{'case':<{widths[0]}} {'what':<{widths[1]}} {'expected':<{widths[2]}} {'seen':<{widths[3]}} {'s':>6}")
    for row in rows:
        cells = zip((row.case, row.what, row.expected, row.seen), widths)
        print(*(f"{shorten(value, width):<{width}}" for value, width in cells), f"{row.seconds:6.1f}", "" if row.passed else "FAIL")
    failed = [row for row in rows if not row.passed]
    print(f"\n{len(rows) - len(failed)} of {len(rows)} as expected, {len({row.case for row in failed})} cases failed")
    return failed


def run_cases(kinds, cluster, programs, fleet, options):
    done = {}
    lock = threading.Lock()

    def execute(kind, again=False):
        case = cases.Case(kind, cluster, programs, fleet, show, options.keep and len(kinds) == 1, again)
        case.execute()
        with lock:
            done[kind.name] = case

    together = sorted((kind for kind in kinds if not kind.alone), key=lambda kind: -kind.seconds)
    with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
        for future in [lanes.submit(execute, kind) for kind in together]:
            future.result()
    for kind in (kind for kind in kinds if kind.alone):
        execute(kind)
    # Four cases on two cores make each other late. What still fails by itself is at fault. (A scaler that is broken on
    # purpose is, and a cluster that stays shall show the first failure.)
    if not options.broken and not options.keep:
        for kind in [kind for kind in kinds if not kind.alone and not done[kind.name].passed()]:
            print(f"  {kind.name} failed beside other cases: once more, alone", flush=True)
            execute(kind, again=True)
    return [row for kind in kinds for row in done[kind.name].rows]


def main():
    parser = argparse.ArgumentParser(prog="tests/cluster/run")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--needs", action="store_true", help="what the chosen cases need, for `run`")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--keda")
    parser.add_argument("--broken")
    parser.add_argument("--real-vllm", action="store_true")
    options = parser.parse_args()
    load_suite()
    if options.list:
        for kind in cases.REGISTRY.values():
            marks = " ".join(mark for mark, on in [("ci", kind.ci), ("alone", kind.alone)] if on)
            print(f"{kind.name:<16} {kind.seconds:>4} s  {marks:<9} {kind.about.splitlines()[0] if kind.about else ''}")
        return 0

    if options.needs:
        print(*sorted(frozenset().union(*(kind.needs for kind in chosen(options)))))
        return 0

    def leave(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    kinds = chosen(options)
    state = processes.STATE
    programs = processes.Programs()
    keep_marker = os.path.join(state, "keep")
    open(keep_marker, "w").close()
    begun = time.monotonic()
    try:
        cluster = Cluster(programs, state)
        cluster.start()
        served = time.monotonic() - begun
        print(f"the API server serves after {served:.1f} s", flush=True)
        if options.ci and served > SLOWEST_START_SECONDS:
            print(f"NOT JUDGED: this machine is too slow: up to {SLOWEST_START_SECONDS} s can be judged", flush=True)
            os.remove(keep_marker)
            return TOO_SLOW
        cluster.start_keda()
        print(f"KEDA serves after {time.monotonic() - begun:.1f} s", flush=True)
        needs = frozenset().union(*(kind.needs for kind in kinds))
        if "lws" in needs:
            cluster.start_lws()
        fleet = Fleet(programs, cluster) if needs & {"fleet", "lws"} else None
        rows = run_cases(kinds, cluster, programs, fleet, options)
        failed = table(rows)
        for program in programs.dead():
            print(f"{program.name} ended by itself with {program.process.returncode}:\n{program.tail()}")
        print(f"{time.monotonic() - begun:.0f} s from the start of the cluster", flush=True)
        if options.keep:
            left = f", with what {kinds[0].name} made in it" if len(kinds) == 1 else ""
            print(f"\nThe cluster stays{left} until Ctrl-C. To look at it:\n  ip netns exec {os.environ['RIG_NAMESPACE']} "
                  f"{cluster.api.kubectl_program} --kubeconfig {cluster.api.kubeconfig} get pods -A\n  logs: {state}/log", flush=True)
            signal.pause()
        if not failed and not options.keep:
            os.remove(keep_marker)
        return verdict(options, failed, {kind.name for kind in kinds})
    except KeyboardInterrupt:
        os.remove(keep_marker)
        return 130
    finally:
        programs.stop_all()


def verdict(options, failed, ran):
    """0 when all is as it should be: nothing failed, or, broken on purpose, exactly what had to."""
    if not options.broken:
        return 1 if failed else 0
    seen = {row.case for row in failed}
    must = must_fail(options.broken) & ran
    print(f"broken on purpose ({options.broken}): must fail {', '.join(sorted(must))}; failed {', '.join(sorted(seen)) or 'none'}")
    return 0 if seen == must else 1


sys.exit(main())
