#!/usr/bin/env python3
"""Records how often lateen-proxy takes which branch while it serves: crates/proxy/rustc-RELEASE-COMMIT-HOST.profdata.gz, which
hack/cargo-release.sh gives the compiler.

  hack/profile.py                builds a proxy that counts, in a target directory of its own, has a mesh serve the loads of
                                 hack/proxy_loads.py through node proxies and a waypoint, and writes the counts
  hack/profile.py check PROGRAM  whether the functions of a program have their names in the profile (one test; what tests/tiers/test runs)

Record as root on x86_64 Linux after `make build`, and build again afterwards. It takes ten minutes on two processors. It needs the
component llvm-tools of rustup, of the same toolchain. The file has functions that were never entered as well: the compiler makes those small.
"""
import glob, gzip, os, re, shutil, signal, subprocess, sys, tempfile, time

from proxy_loads import ROOT, THROUGH_NODES, THROUGH_WAYPOINT, Mesh, programs


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def counting_proxy():
    """The path of a lateen-proxy that writes its counts to LLVM_PROFILE_FILE when it ends."""
    target = os.path.join(os.path.realpath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))), "profile-generate")
    # Build scripts and macros count as well.
    environment = os.environ | {"CARGO_TARGET_DIR": target, "RUSTFLAGS": "-Cprofile-generate", "LLVM_PROFILE_FILE": "/dev/null"}
    # The same packages as `make build`: the features of dependencies are part of the names of all functions.
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "lateen-proxy", "-p", "lateen-load"], cwd=ROOT, env=environment, check=True)
    return os.path.join(target, "release/lateen-proxy")


def serve(binaries, program):
    """Has a mesh serve, and ends its proxies, which then write."""
    mesh = Mesh(binaries)
    try:
        mesh.up()
        mesh.join()
        time.sleep(5)
        for load in THROUGH_NODES:
            print("through node proxies", load, mesh.load(*load), "answers", flush=True)
        mesh.use_waypoint(program)
        if len(mesh.proxies) != 3:
            sys.exit(f"{len(mesh.proxies)} proxies serve, and two nodes and a waypoint should: the recorded profile is as it was")
        for load in THROUGH_WAYPOINT:
            print("through a waypoint", load, mesh.load(*load), "answers", flush=True)
        for pid in mesh.proxies:
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + 60
        while any(os.path.exists(f"/proc/{pid}") for pid in mesh.proxies):
            if time.monotonic() > end:
                sys.exit("a proxy did not end within 60 s of SIGTERM: the recorded profile is as it was")
            time.sleep(0.2)
    finally:
        mesh.down()


def recorded():
    """Where the profile of this machine's rustc is kept."""
    rustc = dict(line.split(": ", 1) for line in output(os.environ.get("RUSTC", "rustc"), "-vV").splitlines()[1:])
    return os.path.join(ROOT, f"crates/proxy/rustc-{rustc['release']}-{rustc['commit-hash'][:9]}-{rustc['host']}.profdata.gz")


def record():
    host = output("rustc", "--print", "host-tuple")
    merge = os.path.join(output("rustc", "--print", "sysroot"), f"lib/rustlib/{host}/bin/llvm-profdata")
    if not os.path.exists(merge):
        sys.exit(f"{merge} is not there: rustup component add llvm-tools")
    program = counting_proxy()
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="proxy-loads-") as counts:
        os.chmod(counts, 0o1777)
        # A waypoint has a user of its own, who may not be allowed to enter the folders above the target directory.
        program = shutil.copy(program, counts)
        stand_in = f'#!/bin/sh\nexport LLVM_PROFILE_FILE={counts}/%p-%m.profraw\nexec {program} "$@"\n'
        with programs(stand_in) as binaries:
            serve(binaries, program)
        raw = glob.glob(f"{counts}/*.profraw")
        # Node proxies that the engine starts again write as well. A waypoint's files are those of another user.
        if len(raw) < 3 or not any(os.stat(path).st_uid for path in raw):
            sys.exit("two nodes and a waypoint should have written counts: the recorded profile is as it was")
        merged = os.path.join(counts, "merged")
        subprocess.run([merge, "merge", "-o", merged, *raw], check=True)
        with open(merged, "rb") as file:
            data = gzip.compress(file.read(), mtime=0)
    path = recorded()
    for old in glob.glob(os.path.join(ROOT, f"crates/proxy/rustc-*-{host}.profdata.gz")):
        os.remove(old)
    with open(path, "wb") as file:
        file.write(data)
    print(f"{os.path.relpath(path, ROOT)}: {len(data)} bytes of {len(raw)} proxies")


def check(program):
    """Whether most functions of the program have their names in the profile. A name has a hash of the versions and features of its crate
    and of those below: one new version of a crate that many use changes the names of most functions. Whether a function has changed
    since it was counted is not seen here."""
    path = recorded()
    used = subprocess.run([os.path.join(ROOT, "hack/cargo-release.sh"), "profile"], capture_output=True, text=True)
    if used.returncode != 0:
        print(f"skip - builds here have no recorded profile: {used.stderr.strip()}\n0 passed, 0 failed, 1 skipped")
        return
    name = re.compile(rb"_ZN[\w.$]+17h[0-9a-f]{16}E")
    with gzip.open(path) as file:
        known = set(name.findall(file.read()))
    functions = set(name.findall(output("readelf", "-sW", program).encode()))
    share = len(functions & known) / max(1, len(functions))
    print(f"{share:.0%} of {len(functions)} functions of {program} have their names in {os.path.relpath(path, ROOT)}")
    if share >= 0.6:
        print("1 passed, 0 failed, 0 skipped")
        return
    print("not ok - most functions have other names than when the profile was recorded: make build && hack/profile.py && make build")
    print("0 passed, 1 failed, 0 skipped")
    sys.exit(1)


match sys.argv[1:]:
    case []:
        record()
    case ["check", program]:
        check(program)
    case _:
        sys.exit(__doc__)
