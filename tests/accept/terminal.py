#!/usr/bin/env python3
"""Runs a command in a pseudo-terminal of a given width and writes what the terminal received to standard output.

  terminal.py [--columns N] [--rows N] [--seconds S] [--hang-up] [--screen] -- COMMAND [ARGUMENT...]

--columns, --rows  size of the terminal (100 by 40)
--seconds          closes the terminal after S seconds (60)
--hang-up          closes the terminal after --seconds as its ordinary end: the exit status is then 0 if the command ended
                   within ten seconds of it, and 99 if it still runs
--screen           writes the lines that a person would find in the scrollback, with carriage returns, line wraps and
                   "erase line" applied, instead of the raw bytes

The exit status is the command's; 98 if it ran longer than --seconds.
"""
import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time


def screen(data, columns):
    """The scrollback of a terminal that understands CR, LF, erase line (EL 0, 2) and ignores colours."""
    lines, row, column = [[]], 0, 0
    text = data.decode("utf-8", "replace")
    at = 0
    while at < len(text):
        c = text[at]
        escape = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])").match(text, at)
        if escape:
            at = escape.end()
            if escape.group(2) == "K":
                lines[row][0 if escape.group(1) == "2" else column:] = []
            continue
        at += 1
        if c == "\r":
            column = 0
        elif c == "\n":
            row, column = row + 1, 0
        elif c >= " ":
            if column == columns:
                row, column = row + 1, 0
            while len(lines) <= row:
                lines.append([])
            lines[row].extend(" " * (column - len(lines[row])))
            lines[row][column:column + 1] = [c]
            column += 1
        while len(lines) <= row:
            lines.append([])
    return "\n".join("".join(line).rstrip() for line in lines)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--columns", type=int, default=100)
    p.add_argument("--rows", type=int, default=40)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--hang-up", action="store_true")
    p.add_argument("--screen", action="store_true")
    p.add_argument("command", nargs="+")
    o = p.parse_args()

    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.setdefault("TERM", "xterm")
        if os.environ["TERM"] == "dumb":
            os.environ["TERM"] = "xterm"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", o.rows, o.columns, 0, 0))
        try:
            os.execvp(o.command[0], o.command)
        except OSError as e:
            print(f"{o.command[0]}: {e}", file=sys.stderr)
            os._exit(127)
    data, ended, deadline = b"", False, time.monotonic() + o.seconds
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        if select.select([terminal], [], [], left)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                piece = b""
            if not piece:
                ended = True
                break
            data += piece
    os.close(terminal)  # the kernel sends SIGHUP to the session
    status, patience = None, time.monotonic() + 10
    while time.monotonic() < patience:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        status = None
        time.sleep(0.02)
    sys.stdout.buffer.write((screen(data, o.columns) + "\n").encode() if o.screen else data)
    sys.stdout.flush()
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        sys.exit(99)
    if o.hang_up:
        sys.exit(0)
    if not ended:
        sys.exit(98)
    sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


main()
