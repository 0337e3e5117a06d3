#!/usr/bin/env python3
"""Which functions lateen-proxy enters, as the order in which the linker puts them: crates/proxy/order.ld.

  hack/function-order.py                writes the list anew: a mesh of two nodes serves the loads of hack/proxy_loads.py, while hack/entered.py
                                        notes the functions (root; `make build` before it, and again after it)
  hack/function-order.py check PROGRAM  whether the functions of the list lie together in a program (one test; what tests/tiers/test runs)

What requests and connections enter comes first, then what changes of configuration and questions to the proxy add, then what pods that
join after the start do; what starting alone enters is not in the list. Names are patterns without what the compiler derives for them from versions of crates and of itself: such a pattern outlives most changes, and
takes all copies of a generic function along. Where these are many bytes that nobody entered, they come last in their part.
"""
import collections, glob, os, re, signal, subprocess, sys, tempfile, time

from proxy_loads import ROOT, THROUGH_NODES, Mesh, programs

ORDER = os.path.join(ROOT, "crates/proxy/order.ld")
SECTION = ".text.order"
PARTS = [("requests and connections", 2), ("configuration and questions", 3), ("pods that join, certificates, tunnels", 1)]


def symbols(program):
    """Address: (name, size), of its functions."""
    rows = (line.split() for line in subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True).stdout.splitlines())
    return {int(row[1], 16): (row[7], int(row[2], 0)) for row in rows if len(row) >= 8 and row[3] == "FUNC" and row[6] != "UND" and int(row[2], 0)}


def pattern(name):
    name = re.sub(r"\.llvm\..*", "", name)
    if name.startswith("_ZN"):
        return ".text*." + re.sub(r"17h[0-9a-f]{16}E.*", "17h*", name)
    if name.startswith("_R"):
        return ".text*." + re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name) + "*"
    return ".text." + name


def next_phase(mesh):
    for pid in mesh.proxies:
        tracer = next(line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("TracerPid:"))
        os.kill(int(tracer), signal.SIGUSR1)
    time.sleep(1)


def entered(binaries):
    """Has a mesh serve while its proxies are watched."""
    mesh = Mesh(binaries)
    try:
        mesh.up()
        time.sleep(4)
        next_phase(mesh)
        mesh.join()
        time.sleep(5)
        next_phase(mesh)
        for load in THROUGH_NODES:
            print(load, mesh.load(*load), "answers", flush=True)
        time.sleep(3)
        next_phase(mesh)
        for label in "one", "two":
            mesh.lateen("label", "ns", "default", "order=" + label, "--overwrite", check=False)
            mesh.lateen("status")
            time.sleep(5)
    finally:
        mesh.down()


def write():
    program = os.path.join(ROOT, "bin/lateen-proxy")
    with tempfile.TemporaryDirectory() as out:
        stand_in = f'#!/bin/sh\n[ "$1" = node ] || exec {program} "$@"\nexec python3 {ROOT}/hack/entered.py {program} {out} "$@"\n'
        with programs(stand_in) as binaries:
            entered(binaries)
        lines = [line.split() for path in glob.glob(f"{out}/*") for line in open(path)]
    if not all(any(int(line[0]) == phase for line in lines) for _, phase in PARTS):
        sys.exit("a part of the list would have no functions: were the proxies traced? crates/proxy/order.ld is as it was")
    sizes, copies = symbols(program), collections.defaultdict(set)
    for address, (name, _) in sizes.items():
        copies[pattern(name)].add(address)
    size = lambda addresses: sum(sizes[a][1] for a in addresses)
    listed, text = set(), []
    for what, phase in PARTS:
        met = {int(address, 16): None for of, address, _ in lines if int(of) == phase}
        fresh = list(dict.fromkeys(p for p in (pattern(sizes[a][0]) for a in met) if p not in listed))
        listed.update(fresh)
        used = {p: size(copies[p] & met.keys()) for p in fresh}
        dense = lambda p: size(copies[p]) - used[p] <= max(2048, used[p])
        text += [f"    /* {what} */"] + [f"    *({p})" for p in sorted(fresh, key=lambda p: not dense(p))]
        print(f"{what}: {len(fresh)} names, {sum(used.values())} bytes entered, {sum(size(copies[p]) for p in fresh)} with copies")
    with open(ORDER, "w") as file:
        file.write("/* Written by hack/function-order.py, which says how. Sixteen pages are what the kernel maps at a time. */\n")
        file.write(f"SECTIONS {{\n  {SECTION} : ALIGN(65536) {{\n" + "\n".join(text) + "\n  }\n} INSERT BEFORE .text;\n")


def check(program):
    """Whether most names of the list are functions in the section, and whether it is small beside the program's code."""
    sections = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
    bounds = {row[0]: (int(row[2], 16), int(row[4], 16)) for row in re.findall(r"\] (\S+) +(PROGBITS) +(\S+) (\S+) (\S+)", sections)}
    comment = subprocess.run(["readelf", "-p", ".comment", program], capture_output=True, text=True, check=True).stdout
    header = subprocess.run(["readelf", "-hW", program], capture_output=True, text=True, check=True).stdout
    if "Linker: LLD" not in comment or "X86-64" not in header:
        print(f"{program} was not linked by lld for x86-64: its functions are in no order\n0 passed, 0 failed, 1 skipped")
        return
    start, length = bounds.get(SECTION, (0, 0))
    inside = {pattern(name) for address, (name, _) in symbols(program).items() if start <= address < start + length}
    names = re.findall(r"\*\((\S+)\)", open(ORDER).read())
    found = sum(name in inside for name in names)
    print(f"{found} of {len(names)} functions of crates/proxy/order.ld lie in {length} bytes of {bounds['.text'][1] + length} of code")
    if names and length and found >= 0.8 * len(names) and length < 0.5 * (bounds[".text"][1] + length):
        print("1 passed, 0 failed, 0 skipped")
        return
    print("not ok - the functions that serving enters do not lie together: make build && hack/function-order.py && make build writes the list anew")
    print("0 passed, 1 failed, 0 skipped")
    sys.exit(1)


match sys.argv[1:]:
    case []:
        write()
    case ["check", program]:
        check(program)
    case _:
        sys.exit(__doc__)
