"""Programs of the rig: started with a log of their own, stopped in the opposite order. Only what was started here ends."""

import os
import signal
import subprocess
import threading
import time

STATE = os.environ.get("RIG_STATE", "")


class Program:
    """One running program."""

    def __init__(self, name, command, environment=None):
        self.name, self.command, self.environment = name, [str(part) for part in command], environment or {}
        self.log = os.path.join(STATE, "log", f"{name}.log")
        self.process = None
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.environment}, start_new_session=True,
            )

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """At once, as a lost machine would."""
        self.process.kill()
        self.process.wait()

    def stop(self, patience=5):
        if not self.alive():
            return
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, lines=15):
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-lines:])


class Programs:
    """All of them."""

    def __init__(self):
        self.running, self.lock = {}, threading.Lock()

    def start(self, name, command, environment=None):
        program = Program(name, command, environment)
        with self.lock:
            self.running[name] = program
        return program

    def __getitem__(self, name):
        return self.running[name]

    def dead(self):
        """Programs that ended by themselves."""
        with self.lock:
            return [p for p in self.running.values() if p.process.poll() not in (None, 0, -signal.SIGTERM, -signal.SIGKILL)]

    def stop_all(self):
        with self.lock:
            programs = list(reversed(self.running.values()))
            self.running = {}
        for program in programs:
            if program.alive():
                program.process.terminate()
        deadline = time.monotonic() + 5
        for program in programs:
            program.stop(max(0.1, deadline - time.monotonic()))
