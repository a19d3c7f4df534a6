"""A server on this machine that answers as the hub does, for the tests of `ballast pull`.

Paths: /api/models?search=, /api/models/ORG/REPO/tree/main, /ORG/REPO/resolve/main/FILE, which
sends to /cdn/… where the bytes are.
"""
import hashlib
import http.server
import json
import threading
import urllib.parse


class Hub:
    """repositories: {"ORG/REPO": {"file.gguf": bytes}}. The other fields make it misbehave."""

    def __init__(self, repositories):
        self.repositories = repositories
        self.gated = set()        # repositories whose terms are to be accepted
        self.renamed = {}         # old name: new name
        self.cut = 0              # bodies that end early, so many times
        self.cut_after = 0        # bytes
        self.slow = 0.0           # seconds between two parts of a body
        self.no_ranges = False
        self.wrong = False        # a byte of each body is another
        self.hide_sum = False     # no X-Linked-ETag
        self.endless = None       # bytes that a body repeats without a length
        self.endless_sent = 0
        self.token = "secret"
        self.requests = []        # (method, path, Range, Authorization)
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def bytes_sent(self):
        return [r for r in self.requests if r[0] == "GET" and r[1].startswith("/cdn/")]

    def reply(self, to, status, body=b"", headers=()):
        to.send_response(status)
        for name, value in headers:
            to.send_header(name, value)
        if "Content-Length" not in dict(headers):
            to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        if to.command == "GET":
            to.wfile.write(body)

    def refuse(self, to, status, code):
        self.reply(to, status, b'{"error":"no"}', [("X-Error-Code", code)])

    def answer(self, to):
        url = urllib.parse.urlsplit(to.path)
        path = urllib.parse.unquote(url.path)
        self.requests.append((to.command, path, to.headers.get("Range"),
                              to.headers.get("Authorization")))
        parts = path.strip("/").split("/")
        if path == "/api/models":
            wanted = urllib.parse.parse_qs(url.query)["search"][0].lower()
            found = [{"id": name} for name in self.repositories
                     if wanted[:6] in name.lower()]
            return self.reply(to, 200, json.dumps(found).encode())
        if parts[0] == "cdn":
            return self.send_file(to, self.repositories["/".join(parts[1:3])]["/".join(parts[3:])])
        repository = "/".join(parts[2:4] if parts[0] == "api" else parts[0:2])
        if repository in self.renamed:
            new = path.replace(repository, self.renamed[repository])
            return self.reply(to, 307, headers=[("Location", new)])
        if repository not in self.repositories:
            return self.refuse(to, 401, "RepoNotFound")
        may = to.headers.get("Authorization") == f"Bearer {self.token}"
        files = self.repositories[repository]
        if parts[0] == "api":
            listed = [{"type": "file", "path": name, "size": len(data)}
                      for name, data in files.items()]
            return self.reply(to, 200, json.dumps(listed).encode())
        if repository in self.gated and not may:
            return self.refuse(to, 401, "GatedRepo")
        file = "/".join(parts[4:])
        if parts[2:4] != ["resolve", "main"] or file not in files:
            return self.refuse(to, 404, "EntryNotFound")
        headers = [("Location", f"{self.address}/cdn/{repository}/{file}")]
        if not self.hide_sum:
            digest = hashlib.sha256(files[file]).hexdigest()
            headers += [("X-Linked-ETag", f'"{digest}"'), ("X-Linked-Size", str(len(files[file])))]
        return self.reply(to, 302, headers=headers)

    def send_file(self, to, data):
        if self.endless:
            to.send_response(200)
            to.send_header("Connection", "close")
            to.end_headers()
            to.close_connection = True
            try:
                while to.command == "GET":
                    to.wfile.write(self.endless)
                    self.endless_sent += len(self.endless)
            except OSError:  # the client has gone
                pass
            return None
        if self.wrong:
            data = data[:-1] + bytes([data[-1] ^ 1])
        begin, whole = 0, len(data)
        headers = [("ETag", f'"{hashlib.sha256(data).hexdigest()}"'), ("Accept-Ranges", "bytes")]
        asked = to.headers.get("Range")
        status = 200
        if asked and not self.no_ranges:
            begin = int(asked.removeprefix("bytes=").split("-")[0])
            if begin >= whole:
                return self.reply(to, 416)
            status = 206
            headers.append(("Content-Range", f"bytes {begin}-{whole - 1}/{whole}"))
        body = data[begin:]
        headers.append(("Content-Length", str(len(body))))
        if self.cut > 0 and to.command == "GET":
            self.cut -= 1
            self.reply(to, status, body[:self.cut_after], headers)
            to.close_connection = True
            return to.connection.close()
        if self.slow and to.command == "GET":
            self.reply(to, status, b"", headers)
            step = max(1, len(body) // 40)
            try:
                for at in range(0, len(body), step):
                    to.wfile.write(body[at:at + step])
                    threading.Event().wait(self.slow)
            except OSError:  # the client has gone
                to.close_connection = True
            return None
        return self.reply(to, status, body, headers)
