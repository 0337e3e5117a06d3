"""A mesh of this machine whose proxies serve loads, for scripts that watch what the proxies do. They put a stand-in in place of
bin/lateen-proxy. Linux, root, after `make build`."""
import contextlib, glob, json, os, re, subprocess, sys, tempfile, time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
WORLDS = os.path.join(ROOT, "internal/lab/scenario/worlds")
PAGE, NEW_CONNECTIONS = "http://echo:8080/?size=1024", "--no-keepalive"
# URL, requests/s (0: closed loop), connections, further flags of lateen-load.
THROUGH_NODES = [
    (PAGE, 1000, 16), (PAGE, 100, 16), (PAGE, 1000, 16), (PAGE, 0, 16), (PAGE, 300, 16, NEW_CONNECTIONS), (PAGE, 0, 8, NEW_CONNECTIONS),
    ("http://echo:8080/?size=1048576", 0, 1), ("http://near:8080/?size=1024", 1000, 16), ("http://near:8080/?size=1024", 0, 8, NEW_CONNECTIONS),
]
THROUGH_WAYPOINT = [
    (PAGE, 1000, 16), (PAGE, 0, 16), (PAGE, 300, 16, NEW_CONNECTIONS), (PAGE, 0, 8, NEW_CONNECTIONS), (PAGE, 1000, 16, "--http2"),
    ("http://echo:8080/?size=65536", 200, 16, "--body-size", "65536"), ("grpc://echo-grpc:8082", 1000, 16), ("grpc://echo-grpc:8082", 0, 16),
]
# A policy about requests, which allows them.
POLICY = """apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: requests}
spec:
  targetRefs: [{kind: Service, group: "", name: echo}]
  rules: [{from: [{source: {namespaces: [default]}}], to: [{operation: {methods: [GET, POST], paths: ["/*"]}}]}]
"""


@contextlib.contextmanager
def programs(stand_in):
    """A folder with the programs of bin/, and with a script in place of lateen-proxy. Any user may read it."""
    real = os.path.join(ROOT, "bin")
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="proxy-loads-") as folder:
        os.chmod(folder, 0o755)
        for path in glob.glob(f"{real}/lateen*"):
            if os.path.basename(path) != "lateen-proxy":
                os.link(path, os.path.join(folder, os.path.basename(path)))
        script = os.path.join(folder, "lateen-proxy")
        with open(script, "w") as file:
            file.write(stand_in)
        os.chmod(script, 0o755)
        yield folder


class Mesh:
    """A mesh of two nodes with the lab's client and echo services. `proxies` has the pids of its proxies."""

    def __init__(self, binaries):
        self.bin, self.name, self.proxies = binaries, f"loads-{os.getpid()}", []

    def lateen(self, *arguments, check=True, text=None):
        mine = os.environ | {"LATEEN_NAME": self.name}
        done = subprocess.run([os.path.join(self.bin, "lateen"), *arguments], capture_output=True, text=True, input=text, env=mine)
        if check and done.returncode:
            sys.exit(f"lateen {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done

    def objects(self, kind):
        return json.loads(self.lateen("get", kind, "-o", "json").stdout)["items"]

    def up(self):
        self.lateen("up", "--nodes", "2")
        self.proxies = [node["proxy"]["pid"] for node in json.loads(self.lateen("status", "-o", "json").stdout)["nodes"]]

    def join(self):
        """Pods join the mesh. From then on `load` works."""
        for world in ("client", "echo", "echo-grpc", "near"):
            self.lateen("apply", "-f", f"{WORLDS}/{world}.yaml")
        self.lateen("label", "ns", "default", "istio.io/dataplane-mode=ambient")
        self.lateen("wait", "--timeout", "60s")
        client = next(pod for pod in self.objects("pods") if pod["metadata"]["name"].startswith("client-"))
        run = f"/run/lateen/{self.name}"
        engine = json.load(open(f"{run}/engine.json"))["pid"]
        self.net = f"/proc/{engine}/root{run}/netns/{client['metadata']['uid']}"
        self.ips = {service["metadata"]["name"]: service["spec"]["clusterIP"] for service in self.objects("services")}

    def use_waypoint(self, program):
        """A waypoint stands before the services. `program` is the path of the proxy that it runs."""
        self.lateen("waypoint", "apply", "--name", "way", "--for", "service", "--wait")
        self.lateen("apply", "-f", "-", text=POLICY)
        for service in ("echo", "echo-grpc"):
            self.lateen("label", "svc", service, "istio.io/use-waypoint=way")
        self.lateen("wait", "--timeout", "60s")
        command = [program.encode(), b"waypoint"]
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError), open(path, "rb") as file:  # it may have ended
                if file.read().split(b"\0")[:2] == command:
                    self.proxies.append(int(path.split("/")[2]))
        time.sleep(5)

    def load(self, url, rate, connections, *flags, seconds=2):
        """The number of answers with a status of success."""
        service = re.search("//([^:]*)", url)[1]
        command = ["nsenter", f"--net={self.net}", "--", os.path.join(self.bin, "lateen-load"), "run", "--json", "-", "--warmup", "0s"]
        command += ["--url", url.replace(service, self.ips[service], 1), "--qps", str(rate), "--connections", str(connections), "--duration", f"{seconds}s", *flags]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["counts"]["ok"]

    def down(self):
        self.lateen("down", check=False)
