#!/usr/bin/env python3
"""Runs a program and writes down which of its functions it enters, in the order of their first time.

  hack/entered.py PROGRAM OUT [ARGUMENT...]

A breakpoint is on the first byte of every function and goes away when it is met, so that the program then runs at its own speed. The
program keeps this process' id, as whoever started it expects; its tracer is a child. A line of OUT/ID is a phase, an address and a
name. SIGUSR1 to the tracer (TracerPid in /proc/ID/status) begins the next phase: all breakpoints are set anew. Linux on x86_64, root.
"""
import ctypes, os, signal, subprocess, sys

SEIZE, CONTINUE, PEEK, POKE, LISTEN = 0x4206, 7, 3, 6, 0x4208
TRACE_CLONE_AND_EXEC, EVENT_EXEC, EVENT_STOP, ALL_CHILDREN = 8 | 16, 4, 128, 0x40000000
INSTRUCTION_POINTER = 16 * 8  # in struct user
BREAKPOINT = 0xCC


def functions(program):
    """Address: name, of everything that is a function with a length."""
    rows = (line.split() for line in subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True).stdout.splitlines())
    return {int(row[1], 16): row[7] for row in rows if len(row) >= 8 and row[3] == "FUNC" and row[6] != "UND" and int(row[2], 0)}


class Tracer:
    def __init__(self, program, target, out):
        self.program, self.target, self.phase, self.seen, self.first = program, target, 0, set(), {}
        self.names = functions(program)
        self.low, self.high = min(self.names), max(self.names) + 1
        self.out = open(os.path.join(out, str(target)), "w", buffering=1)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes, self.libc.ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long
        if self.libc.ptrace(SEIZE, target, None, TRACE_CLONE_AND_EXEC):
            sys.exit(f"trace {target}: {os.strerror(ctypes.get_errno())}; it needs root, and no other tracer")

    def arm(self):
        text = bytearray(os.pread(self.memory, self.high - self.low, self.base + self.low))
        for address in self.names:
            if text[address - self.low] != BREAKPOINT:
                self.first.setdefault(address, text[address - self.low])
                text[address - self.low] = BREAKPOINT
        os.pwrite(self.memory, bytes(text), self.base + self.low)

    def next_phase(self, *_):
        self.phase += 1
        self.arm()

    def began(self, pid):
        name = os.path.basename(self.program)
        self.base = next(int(line.split("-")[0], 16) for line in open(f"/proc/{pid}/maps") if line.rstrip().endswith(name))
        self.memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        self.arm()
        signal.signal(signal.SIGUSR1, self.next_phase)

    def met(self, thread):
        """Whether the thread stands behind a breakpoint of ours: written down, taken away, and the thread set before it."""
        at = self.libc.ptrace(PEEK, thread, INSTRUCTION_POINTER, None) - 1
        address = at - self.base
        if address not in self.first:
            return False
        os.pwrite(self.memory, bytes([self.first[address]]), at)
        self.libc.ptrace(POKE, thread, INSTRUCTION_POINTER, at)
        if (self.phase, address) not in self.seen:
            self.seen.add((self.phase, address))
            print(self.phase, f"{address:x}", self.names[address], file=self.out)
        return True

    def follow(self):
        while True:
            try:
                thread, status = os.waitpid(-1, ALL_CHILDREN)
            except ChildProcessError:
                return
            if not os.WIFSTOPPED(status):
                continue
            received, event = os.WSTOPSIG(status), status >> 16
            if event == EVENT_STOP and received in (signal.SIGSTOP, signal.SIGTSTP):
                self.libc.ptrace(LISTEN, thread, None, None)
                continue
            if event == EVENT_EXEC:
                self.began(thread)
            ours = event or received == signal.SIGTRAP and self.met(thread)
            self.libc.ptrace(CONTINUE, thread, None, 0 if ours else received)


def main():
    program, out, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
    traced, attached = os.pipe()
    target = os.getpid()
    if os.fork():
        os.close(attached)
        os.read(traced, 1)  # ends when the tracer has attached, or has ended
        os.close(traced)
        os.execv(program, [program] + arguments)
    os.close(traced)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    tracer = Tracer(program, target, out)
    os.close(attached)
    tracer.follow()


main()
