# Serves pages that hide nothing: all origins may read them with the visitor's credentials. Prints
# a line of JSON for each request.
import http.server
import json
import sys
import urllib.parse

port, secret, domain = int(sys.argv[1]), sys.argv[2], sys.argv[3]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(size)
        print(json.dumps({"method": self.command, "path": self.path, "headers": self.headers.items()}), flush=True)
        url = urllib.parse.urlsplit(self.path)
        kind, body, status = "text/html", "<title>page</title><p>%s</p>" % secret, 200
        headers = [("Set-Cookie", "own=%s" % secret), ("Set-Cookie", "planted-by-%s=1; Domain=%s" % (secret, domain)),
                   ("Set-Cookie", "sandbar_preview=planted"), ("Service-Worker-Allowed", "/"), ("Cache-Control", "no-store")]
        if self.headers.get("Origin"):
            headers += [("Access-Control-Allow-Origin", self.headers["Origin"]), ("Access-Control-Allow-Credentials", "true")]
        if url.path == "/worker.js":
            kind, body = "text/javascript", "onfetch = e => e.respondWith(new Response('from the worker'))"
        elif url.path == "/headers":
            kind, body = "application/json", json.dumps(dict(self.headers.items()))
        elif url.path == "/to":
            status = 307
            headers.append(("Location", urllib.parse.unquote(url.query)))
        data = body.encode()
        self.send_response(status)
        for name, value in headers + [("Content-Type", kind), ("Content-Length", str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_OPTIONS = do_GET

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
