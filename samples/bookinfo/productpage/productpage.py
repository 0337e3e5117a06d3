"""The product page of the bookshop: asks details and reviews, and shows what they say.

Environment:
  PORT         where to listen, 9080 unless set
  MODE         new (default): HTTP/1.1, connections are kept, WORKERS processes;
               old: HTTP/1.0, a connection per request, one process
  WORKERS      processes in mode new, 2 unless set
  POOL         1 keeps connections to the services; 0 (default) opens one per call
  DETAILS_HOSTNAME, REVIEWS_HOSTNAME, RATINGS_HOSTNAME
               names of the services: details, reviews, ratings unless set
  DETAILS_SERVICE_PORT, REVIEWS_SERVICE_PORT, RATINGS_SERVICE_PORT
               their ports, 9080 unless set
  ACCESS_LOG   1 (default) logs a line per request to stderr; 0 logs nothing

There is no password: /login believes whatever name it is given. Do not put this on the internet.
"""

import html
import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

TIMEOUT = 3.0
DRAIN = 5.0
LARGEST_FORM = 16 * 1024

# What ties the calls of one request together, and the user it is for.
FORWARDED = (
    "x-request-id",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
    "b3",
    "traceparent",
    "tracestate",
    "baggage",
    "x-ot-span-context",
    "x-cloud-trace-context",
    "grpc-trace-bin",
    "sw8",
    "user-agent",
    "authorization",
)

PRODUCTS = [
    {
        "id": 0,
        "title": "The Comedy of Errors",
        "descriptionHtml": (
            "Twin brothers, parted by a shipwreck, come to the same town on the same day, each with "
            "a servant, who are twins as well. By evening everyone has been mistaken for someone."
        ),
    }
]


def switch(name, default, allowed):
    value = os.environ.get(name) or default
    if value not in allowed:
        sys.exit(f"productpage: {name}={value}: must be {' or '.join(allowed)}")
    return value


def number(name, default):
    value = os.environ.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,5}", value):
        sys.exit(f"productpage: {name}={value}: must be a number")
    return int(value)


PORT = number("PORT", 9080)
MODE = switch("MODE", "new", ("new", "old"))
WORKERS = max(1, number("WORKERS", 2)) if MODE == "new" else 1
POOL = switch("POOL", "0", ("0", "1")) == "1"
ACCESS_LOG = switch("ACCESS_LOG", "1", ("0", "1")) == "1"
SERVICES = {
    name: (os.environ.get(f"{name.upper()}_HOSTNAME") or name, number(f"{name.upper()}_SERVICE_PORT", 9080))
    for name in ("details", "reviews", "ratings")
}


# --- calls to the services ---------------------------------------------------------------------

_kept = threading.local()


def fetch(service, path, headers):
    """Returns status and parsed JSON; what goes wrong on the way is a 503 that says so."""
    try:
        status, body = exchange(service, path, headers)
    except (OSError, http.client.HTTPException) as error:
        reason = "took too long" if isinstance(error, TimeoutError) else "cannot be reached"
        return 503, {"error": f"{service} {reason}"}
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        return 502, {"error": f"{service} did not answer with a JSON object"}
    return status, content


def exchange(service, path, headers):
    if not POOL:
        connection = http.client.HTTPConnection(*SERVICES[service], timeout=TIMEOUT)
        try:
            return request(connection, path, {**headers, "Connection": "close"})
        finally:
            connection.close()
    connections = _kept.__dict__.setdefault("connections", {})
    connection = connections.get(service)
    if connection is not None:
        try:
            return request(connection, path, headers)
        except TimeoutError:
            connection.close()
            del connections[service]
            raise
        except (OSError, http.client.HTTPException):
            # The service closed it meanwhile, which says nothing about a new one.
            connection.close()
            del connections[service]
    connection = http.client.HTTPConnection(*SERVICES[service], timeout=TIMEOUT)
    try:
        answer = request(connection, path, headers)
    except (OSError, http.client.HTTPException):
        connection.close()
        raise
    connections[service] = connection
    return answer


def request(connection, path, headers):
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def details_of(product, headers):
    return fetch("details", f"/details/{product}", headers)


def reviews_of(product, headers):
    """Reviews are tried twice."""
    status, content = fetch("reviews", f"/reviews/{product}", headers)
    if status != 200:
        status, content = fetch("reviews", f"/reviews/{product}", headers)
    return status, content


def ratings_of(product, headers):
    return fetch("ratings", f"/ratings/{product}", headers)


# --- pages -------------------------------------------------------------------------------------

STYLE = """
:root{color-scheme:light dark;--line:#8884;--accent:#0b6e99;--soft:#8881}
*{box-sizing:border-box}
body{margin:0;font:16px/1.55 system-ui,sans-serif}
header{display:flex;gap:1rem;align-items:center;padding:.7rem 1.2rem;border-bottom:1px solid var(--line)}
header a.name{font-weight:700;color:inherit;text-decoration:none}
header form{margin-left:auto;display:flex;gap:.5rem;align-items:center}
input,button{font:inherit;padding:.2rem .6rem;border:1px solid var(--line);border-radius:.4rem;background:none;color:inherit}
button{background:var(--accent);color:#fff;border-color:var(--accent);cursor:pointer}
main{max-width:60rem;margin:0 auto;padding:1.2rem}
h1{margin:.4rem 0;font-size:2rem;font-family:Georgia,serif}
.lead{font-size:1.08rem;max-width:44rem}
.columns{display:grid;grid-template-columns:minmax(16rem,1fr) 2fr;gap:1.5rem;margin-top:1.5rem}
@media(max-width:44rem){.columns{grid-template-columns:1fr}}
section{background:var(--soft);border:1px solid var(--line);border-radius:.7rem;padding:.4rem 1.1rem 1rem}
h2{font-size:1.1rem;margin:.6rem 0}
dl{display:grid;grid-template-columns:auto 1fr;gap:.15rem 1rem;margin:0}
dt{opacity:.7}dd{margin:0}
blockquote{margin:0 0 1rem;padding-left:.9rem;border-left:3px solid var(--line)}
blockquote p{margin:.1rem 0}
small{opacity:.7}
.stars{letter-spacing:.1em;font-size:1.2rem}
.stars.black{color:inherit}.stars.red{color:#d1242f}
.error{color:#d1242f;font-weight:600}
table{border-collapse:collapse}td,th{padding:.3rem .9rem .3rem 0;text-align:left}
"""


def document(title, user, content):
    if user:
        account = f'<span>{html.escape(user)}</span><form action="/logout"><button>Sign out</button></form>'
    else:
        account = (
            '<form method="post" action="/login"><input name="username" aria-label="User name" '
            'placeholder="any name" required maxlength="40"><button>Sign in</button></form>'
        )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<style>{STYLE}</style></head><body><header><a class="name" href="/">Bookinfo</a>{account}</header>'
        f"<main>{content}</main></body></html>"
    )


def front_page(user):
    rows = "".join(
        f"<tr><td>{name}</td><td>{html.escape(host)}:{port}</td></tr>" for name, (host, port) in SERVICES.items()
    )
    return document(
        "Bookinfo",
        user,
        "<h1>A bookshop with one book</h1>"
        '<p class="lead">Four small services in four languages, here to have traffic among them: '
        "this page asks details and reviews; reviews, from its second version on, asks ratings.</p>"
        '<p><a href="/productpage?u=normal">The book, as anyone sees it</a> · '
        '<a href="/productpage?u=test">as a tester sees it</a></p>'
        f"<h2>Services</h2><table><tr><th>Service</th><th>Address</th></tr>{rows}</table>",
    )


def product_page(product, user, details, reviews):
    return document(
        product["title"],
        user,
        f"<h1>{html.escape(product['title'])}</h1><p class=\"lead\">{product['descriptionHtml']}</p>"
        f'<div class="columns">{details_section(*details)}{reviews_section(*reviews)}</div>',
    )


DETAIL_NAMES = (
    ("author", "Author"),
    ("year", "Year"),
    ("type", "Type"),
    ("pages", "Pages"),
    ("publisher", "Publisher"),
    ("language", "Language"),
    ("ISBN-10", "ISBN-10"),
    ("ISBN-13", "ISBN-13"),
)


def details_section(status, details):
    if status != 200:
        return f'<section id="details"><h2>Details</h2>{error_paragraph(details)}</section>'
    rows = "".join(
        f"<dt>{label}</dt><dd>{html.escape(str(details[key]))}</dd>" for key, label in DETAIL_NAMES if key in details
    )
    return f'<section id="details"><h2>Details</h2><dl>{rows}</dl></section>'


def reviews_section(status, reviews):
    found = reviews.get("reviews")
    if status != 200 or not isinstance(found, list):
        return f'<section id="reviews"><h2>Reviews</h2>{error_paragraph(reviews)}</section>'
    quotes = "".join(review_quote(review) for review in found if isinstance(review, dict))
    served = html.escape(str(reviews.get("podname", "")))
    return f'<section id="reviews"><h2>Reviews</h2>{quotes}<small>Reviews from {served}</small></section>'


def review_quote(review):
    text = html.escape(str(review.get("text", "")))
    reviewer = html.escape(str(review.get("reviewer", "")))
    return f"<blockquote><p>{text}</p><small>{reviewer}</small>{stars_paragraph(review.get('rating'))}</blockquote>"


def stars_paragraph(rating):
    if not isinstance(rating, dict):
        return ""
    stars = rating.get("stars")
    if not isinstance(stars, int):
        return error_paragraph(rating)
    stars = min(max(stars, 0), 5)
    color = rating.get("color") if rating.get("color") in ("black", "red") else "black"
    return (
        f'<p class="stars {color}" role="img" aria-label="{stars} of 5 stars">'
        f"{'★' * stars}{'☆' * (5 - stars)}</p>"
    )


def error_paragraph(content):
    return f'<p class="error">{html.escape(str(content.get("error", "not available")))}</p>'


# --- the server --------------------------------------------------------------------------------

_under_way = 0
_under_way_lock = threading.Lock()


def count_under_way(step):
    global _under_way
    with _under_way_lock:
        _under_way += step


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1" if MODE == "new" else "HTTP/1.0"
    server_version = "bookinfo-productpage"
    sys_version = ""
    timeout = 75
    # In mode new a response leaves in one write, at once; in mode old as the library likes it.
    wbufsize = -1 if MODE == "new" else 0
    disable_nagle_algorithm = MODE == "new"

    def handle_one_request(self):
        # Not around the wait for the next request on a kept connection.
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self):
        self.count(self.get)

    def do_POST(self):
        self.count(self.post)

    def count(self, act):
        count_under_way(1)
        try:
            act()
            self.wfile.flush()
        finally:
            count_under_way(-1)

    def get(self):
        url = urlsplit(self.path)
        path = url.path
        if path in ("/", "/index.html"):
            self.send_page(front_page(self.user()))
        elif path == "/health":
            self.send_text(200, "productpage is healthy\n")
        elif path == "/productpage":
            product, headers = PRODUCTS[0], self.headers_to_forward()
            details = details_of(product["id"], headers)
            reviews = reviews_of(product["id"], headers)
            self.send_page(product_page(product, self.user(), details, reviews))
        elif path == "/logout":
            self.redirect("/productpage", "user=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax")
        elif path == "/api/v1/products":
            self.send_json(200, PRODUCTS)
        elif match := re.fullmatch(r"/api/v1/products/([^/]+)(/reviews|/ratings)?", path):
            self.get_product(*match.groups())
        else:
            self.send_json(404, {"error": "not found"})

    def get_product(self, product, part):
        if not re.fullmatch(r"[0-9]{1,9}", product):
            self.send_json(400, {"error": "the product id must be a number"})
            return
        ask = {None: details_of, "/reviews": reviews_of, "/ratings": ratings_of}[part]
        self.send_json(*ask(int(product), self.headers_to_forward()))

    def post(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_FORM:
            # What follows cannot be told from a next request.
            self.close_connection = True
            self.send_json(413 if length.isdecimal() else 411, {"error": "a form of known and modest length"})
            return
        form = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"))
        if urlsplit(self.path).path != "/login":
            self.send_json(404, {"error": "not found"})
            return
        user = form.get("username", [""])[0].strip()[:40]
        if not user:
            self.send_json(400, {"error": "a user needs a name"})
            return
        self.redirect("/productpage", f"user={quote(user, safe='')}; Path=/; HttpOnly; SameSite=Lax")

    def user(self):
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get("user")
        except CookieError:
            return ""
        return unquote(cookie.value)[:40] if cookie else ""

    def headers_to_forward(self):
        headers = {name: self.headers[name] for name in FORWARDED if name in self.headers}
        user = self.user()
        if user:
            headers["end-user"] = quote(user, safe=" ")
        return headers

    def redirect(self, location, cookie):
        self.send_response(302)
        self.send_header("Location", location)
        self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_page(self, page):
        self.send_content(200, "text/html; charset=utf-8", page.encode())

    def send_text(self, status, text):
        self.send_content(status, "text/plain; charset=utf-8", text.encode())

    def send_json(self, status, content):
        self.send_content(status, "application/json", json.dumps(content).encode())

    def send_content(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code="-", size="-"):
        if ACCESS_LOG:
            print(f"{self.command} {self.path} {int(code)}", file=sys.stderr, flush=True)

    def log_error(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024

    def __init__(self, listener):
        super().__init__(listener.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request, client_address):
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handle_error(request, client_address)


def serve(listener):
    """Serves until SIGTERM; requests under way get a moment to finish."""
    server = Server(listener)
    stop = lambda *_: threading.Thread(target=server.shutdown, daemon=True).start()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server.serve_forever(poll_interval=0.2)
    server.socket.close()
    deadline = time.monotonic() + DRAIN
    while _under_way > 0 and time.monotonic() < deadline:
        time.sleep(0.02)


def main():
    try:
        listener = socket.create_server(("0.0.0.0", PORT), backlog=1024)
    except OSError as error:
        sys.exit(f"productpage: listen on port {PORT}: {error.strerror}")
    # With several processes, one may find that another has taken the connection already.
    listener.setblocking(WORKERS == 1)
    alive, parent = os.pipe()
    children = []
    for _ in range(WORKERS - 1):
        child = os.fork()
        if child == 0:
            os.close(parent)
            # Ends with its parent, however that ends.
            threading.Thread(target=lambda: (os.read(alive, 1), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()
            serve(listener)
            os._exit(0)
        children.append(child)
    serve(listener)
    os.close(parent)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
