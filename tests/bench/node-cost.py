#!/usr/bin/env python3
"""What a pair of node proxies costs beside others, in one run on one machine: a mesh for each, all up at once, blocks interleaved in
random order.

  tests/bench/node-cost.py [--rounds 5] [--seconds 1] [--cells NAMES] [--counts] [--shares] [--out FILE] PLANE...

A PLANE is NAME=OPTION;OPTION..., with the options bin=DIR (programs of another build), proxy=PATH (another node proxy, such as a stock
ztunnel), env=NAME=VALUE (of the proxies), workers=N, none (not enrolled). The first is what the others' CPU is compared with, and their
rates and times as well unless a plane is `none`, which then is what those are compared with:

  tests/bench/node-cost.py 'ztunnel=proxy=/usr/local/bin/ztunnel' 'one=proxy=/usr/local/bin/ztunnel;workers=1' 'lateen='

CPU is read from the proxies' process clocks, over the answers that came. Where others use the machine, ratios are what to read: each is
taken within a round. Processes of the meshes and the generator run at the scheduler's group priority -19, so that others disturb all
alike and little. --counts adds system calls per request, in blocks of their own (perf stat; needs tracefs, mounted in a namespace of
this program's own); --shares where the proxies' time goes, by samples (perf record): kernel, program, libraries, and what is below each
system call. Beside a plane that is not enrolled, times are also told as what they add to its own. The cell `idle` opens 2000 connections and says what each adds to resident memory; `resident` asks nothing, and says what a proxy
has once it has let go of what starting used.

Needs root, `make build`, and the worlds of internal/lab/scenario.
"""
import argparse, ctypes, glob, json, os, random, signal, statistics, subprocess, sys, tempfile, time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
WORLDS = os.path.join(ROOT, "internal/lab/scenario/worlds")
# name: service, size of the answer, requests/s (0: closed loop (saturated)), connections, kept
CELLS = {
    "resident": None,
    "100/1": ("echo", 1024, 100, 1, True),
    "100": ("echo", 1024, 100, 16, True),
    "100/256": ("echo", 1024, 100, 256, True),
    "1000/1": ("echo", 1024, 1000, 1, True),
    "1000/16": ("echo", 1024, 1000, 16, True),
    "1000/256": ("echo", 1024, 1000, 256, True),
    "max/1": ("echo", 1024, 0, 1, True),
    "max/16": ("echo", 1024, 0, 16, True),
    "max/256": ("echo", 1024, 0, 256, True),
    "new/300": ("echo", 1024, 300, 16, False),
    "new/max": ("echo", 1024, 0, 8, False),
    "bulk": ("echo", 1 << 20, 0, 1, True),
    "near/100": ("near", 1024, 100, 16, True),
    "near/1000": ("near", 1024, 1000, 16, True),
    "near/max/1": ("near", 1024, 0, 1, True),
    "near/max": ("near", 1024, 0, 16, True),
    "near/max/256": ("near", 1024, 0, 256, True),
    "near/new": ("near", 1024, 0, 8, False),
    "near/bulk": ("near", 1 << 20, 0, 1, True),
    "idle": ("echo", 16, 500, 2000, True),
}
CALLS = "epoll_wait recvfrom read readv sendto sendmsg writev write pwrite64 futex accept4 connect setsockopt getsockopt close epoll_ctl socket shutdown setns".split()


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done


def until(what, ask):
    for _ in range(150):
        if ask():
            return
        time.sleep(0.2)
    sys.exit(f"{what}: not within 30 s")


class Plane:
    def __init__(self, spec):
        self.name, _, rest = spec.partition("=")
        self.mesh, self.bin, self.enrolled, self.pids = f"cost-{self.name}-{os.getpid()}", os.path.join(ROOT, "bin"), True, []
        self.up = ["up", "--nodes", "2"]
        for option in filter(None, rest.split(";")):
            key, _, value = option.partition("=")
            if key == "bin": self.bin = value
            elif key == "proxy": self.up += ["--node-proxy", f"n1={value}", "--node-proxy", f"n2={value}"]
            elif key == "env": self.up += ["--proxy-env", value]
            elif key == "workers": self.up += ["--workers", value]
            elif key == "none": self.enrolled = False
            else: sys.exit(f"unknown option {option!r}")

    def lateen(self, *arguments, check=True):
        return run(os.path.join(self.bin, "lateen"), "--name", self.mesh, *arguments, check=check)

    def objects(self, kind):
        return json.loads(self.lateen("get", kind, "-o", "json").stdout)["items"]

    def start(self):
        self.lateen(*self.up)
        for world in ("client", "echo", "near"):
            self.lateen("apply", "-f", f"{WORLDS}/{world}.yaml")
        if self.enrolled:
            self.lateen("label", "ns", "default", "istio.io/dataplane-mode=ambient")
            enrolled = lambda pod: pod["metadata"].get("annotations", {}).get("ambient.istio.io/redirection") == "enabled"
            until("the pods are captured", lambda: sum(map(enrolled, self.objects("pods"))) == 3)
        for service in ("echo", "near"):
            url = f"http://{service}:8080/health"
            until(url, lambda: self.lateen("exec", "deploy/client", "--", "curl", "-sf", "-m", "2", url, check=False).returncode == 0)
        run_dir = f"/run/lateen/{self.mesh}"
        engine = json.load(open(f"{run_dir}/engine.json"))["pid"]
        client = next(p for p in self.objects("pods") if p["metadata"]["name"].startswith("client-"))
        self.net = f"/proc/{engine}/root{run_dir}/netns/{client['metadata']['uid']}"
        self.ips = {s["metadata"]["name"]: s["spec"]["clusterIP"] for s in self.objects("services")}
        self.pids = [node["proxy"]["pid"] for node in json.loads(self.lateen("status", "-o", "json").stdout)["nodes"]]
        for pid in descendants(engine):
            prefer(pid)

    def command(self, cell, seconds):
        service, size, qps, connections, kept = CELLS[cell]
        command = ["nsenter", f"--net={self.net}", "--", os.path.join(self.bin, "lateen-load"), "run", "--json", "-", "--warmup", "0s"]
        command += ["--url", f"http://{self.ips[service]}:8080/?size={size}", "--qps", str(qps), "--connections", str(connections)]
        command += ["--duration", f"{seconds}s", "--all-percentiles"] + ([] if kept else ["--no-keepalive"])
        return command

    def load(self, cell, seconds):
        return json.loads(run(*self.command(cell, seconds)).stdout)

    def books(self):
        user = system = switches = 0
        for pid in self.pids:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            user, system = user + int(fields[11]), system + int(fields[12])
            for path in glob.glob(f"/proc/{pid}/task/*/status"):
                lines = dict(l.split(":", 1) for l in open(path).read().splitlines() if "ctxt_switches" in l)
                switches += sum(map(int, lines.values()))
        # CPUCLOCK_SCHED of a process, ended threads included.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self.pids), user, system, switches

    def resident(self, what="Rss"):
        lines = (line for pid in self.pids for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith(what + ":"))
        return sum(int(line.split()[1]) for line in lines)


def descendants(root):
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try: children.setdefault(int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
        except OSError: pass
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def prefer(pid):
    try: open(f"/proc/{pid}/autogroup", "w").write("-19")
    except OSError: pass  # ended, or a kernel without


def block(plane, cell, seconds):
    if cell == "idle":
        before = plane.resident("Pss")
        load = subprocess.Popen(plane.command(cell, 8), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(7)
        during = plane.resident("Pss")
        load.wait()
        return {"bytes": (during - before) * 1024 / CELLS[cell][3]}
    cpu, user, system, switches = plane.books()
    result = plane.load(cell, seconds)
    after = plane.books()
    answers = max(1, result["counts"]["ok"])
    return {"cpu": (after[0] - cpu) * 1e6 / answers, "user": after[1] - user, "system": after[2] - system, "switches": (after[3] - switches) / answers,
            "rate": answers / seconds, "p50": result["response_time"]["p50"], "p99": result["response_time"]["p99"], "failed": result["counts"]["failed"]}


def within(others, mine, what):
    """The median of what each round has to one, and its range."""
    ratios = [b[what] / a[what] for a, b in zip(others, mine) if a[what]]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-"


def counts(plane, cell):
    events = "raw_syscalls:sys_enter," + ",".join("syscalls:sys_enter_" + call for call in CALLS)
    perf = subprocess.Popen(["perf", "stat", "-x,", "-e", events, "-p", ",".join(map(str, plane.pids))], stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    answers = max(1, plane.load(cell, 2)["counts"]["ok"])
    perf.send_signal(signal.SIGINT)
    rows = [line.split(",") for line in perf.communicate()[1].splitlines() if line[:1].isdigit()]
    each = {row[2].split("sys_enter_")[-1].replace("raw_syscalls:sys_enter", "all"): int(row[0]) / answers for row in rows}
    return " ".join(f"{name} {n:.2f}" for name, n in each.items() if n >= 0.02)


def added(bare, others, mine, what):
    """What one adds to no mesh's times, of what the other adds: medians over all rounds, since rounds' differences are small and noisy."""
    none, other, own = (statistics.median(b[what] for b in blocks) for blocks in (bare, others, mine))
    return f"+{own - none:.3f} ms ({(own - none) / (other - none):.2f})" if other > none else f"+{own - none:.3f} ms"


def shares(plane, cell):
    """The share of samples of the kernel, the program and its libraries, and of those below each system call."""
    with tempfile.NamedTemporaryFile() as file:
        perf = subprocess.Popen(["perf", "record", "-q", "-g", "-F", "4999", "-e", "cpu-clock", "-o", file.name, "-p", ",".join(map(str, plane.pids))], stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        plane.load(cell, 3)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        report = lambda *how: [line.split() for line in run("perf", "report", "-q", "--stdio", "-g", "none", "-i", file.name, *how).stdout.splitlines() if "%" in line]
        parts = [(row[1], float(row[0][:-1])) for row in report("--no-children", "--sort", "dso")]
        calls = [(row[-1].split("_sys_")[1], float(row[0][:-1])) for row in report("--children", "--sort", "sym") if "__x64_sys_" in row[-1] or "__arm64_sys_" in row[-1]]
    return " ".join(f"{name} {share:.1f}%" for name, share in parts + calls if share >= 0.8)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1)
    options.add_argument("--cells", default=",".join(CELLS))
    options.add_argument("--counts", action="store_true")
    options.add_argument("--shares", action="store_true")
    options.add_argument("--out")
    options.add_argument("planes", nargs="+", type=Plane)
    options = options.parse_args()
    prefer("self")
    if options.counts:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"tracefs", b"/sys/kernel/tracing", b"tracefs", 0, None):
            sys.exit("mount tracefs: " + os.strerror(ctypes.get_errno()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    median, everything = statistics.median, {}
    try:
        for plane in options.planes:
            plane.start()
        time.sleep(1)
        for cell in options.cells.split(","):
            if cell == "resident":
                time.sleep(6)
                for plane in options.planes:
                    print(f"{cell:10} {plane.name:10} {plane.resident() / 1024 / len(plane.pids):.1f} MB resident, {plane.resident('Pss') / 1024 / len(plane.pids):.1f} MB (PSS), each proxy", flush=True)
                continue
            blocks = {plane.name: [] for plane in options.planes}
            for _ in range(options.rounds if cell != "idle" else 1):
                for plane in random.sample(options.planes, len(options.planes)):
                    blocks[plane.name].append(block(plane, cell, options.seconds))
            everything[cell] = blocks
            first = blocks[options.planes[0].name]
            bare = next((blocks[plane.name] for plane in options.planes if not plane.enrolled), first)
            for plane in options.planes:
                mine = blocks[plane.name]
                if cell == "idle":
                    print(f"{cell:10} {plane.name:10} {mine[0]['bytes']:.0f} bytes per connection; {plane.resident('Pss') / 1024:.1f} MB (PSS), {plane.resident() / 1024:.1f} MB resident, both proxies", flush=True)
                    continue
                ratios = within(first, mine, "cpu")
                user, system = (sum(b[k] for b in mine) for k in ("user", "system"))
                mid = {k: median(b[k] for b in mine) for k in ("cpu", "switches", "rate", "p50", "p99")}
                print(f"{cell:10} {plane.name:10} {mid['cpu']:8.1f} us, ratio {ratios}, user {100 * user / max(1, user + system):.0f} %,"
                      f" {mid['switches']:.2f} switches, {mid['rate']:.0f}/s (ratio {within(bare, mine, 'rate')}), p50 {mid['p50']:.3f} (ratio {within(bare, mine, 'p50')}) p99 {mid['p99']:.3f} ms, {sum(b['failed'] for b in mine)} failed", flush=True)
                if plane.enrolled and bare is not first:
                    print(f"{'':21} added to no mesh: p50 {added(bare, first, mine, 'p50')}, p99 {added(bare, first, mine, 'p99')}", flush=True)
                if options.counts and plane.enrolled:
                    print(f"{'':21} calls: {counts(plane, cell)}", flush=True)
                if options.shares and plane.enrolled:
                    print(f"{'':21} shares: {shares(plane, cell)}", flush=True)
    finally:
        for plane in options.planes:
            plane.lateen("down", check=False)
        if options.out:
            json.dump(everything, open(options.out, "w"))


if __name__ == "__main__":
    main()
