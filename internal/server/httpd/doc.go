// Package httpd is the listener of all HTTP protocols of the daemon, and the checks before them.
//
// A web page in the operator's browser can send requests to a daemon on the same machine, under any
// name that resolves to it. So each request passes these checks, in this order:
//
//   - Host: a loopback name, the address that the daemon listens on or was reached at, or a name
//     that the operator allowed; otherwise 421. This prevents DNS rebinding.
//   - Origin: none, the daemon's own, or one that the operator allowed; otherwise, and for "null",
//     403. The same applies to Sec-Fetch-Site.
//   - Token: exactly one header "Authorization: Bearer TOKEN", compared in constant time; otherwise
//     401, whether or not the path exists. A route that is an Admitter may accept other tokens,
//     each valid for a part of its paths. Host and Origin are checked all the same. A request
//     without the header can have the session of a browser instead, which counts only for the
//     console and the control API, and only if a page of this daemon sends the request.
//   - Role: a token that may only list and read reaches what a Reader names, or GET and HEAD;
//     otherwise 403.
//
// guard.identify is the only place that turns a token into a caller: the operator, or a bearer of a
// tenant's token. Handlers find the caller with engine.Client. The context of a request ends when
// its token is revoked or expires.
//
// GET /health needs no token and reports only that the daemon runs, and its version; with the
// operator's token it reports the load too. GET /metrics is in Prometheus format. All other paths
// are routes of the caller.
//
// Unguarded is for a protocol that must be reachable under any name, because it is behind a reverse
// proxy, and that checks a bearer token of its own on every path. DNS rebinding gains nothing
// there: a web page can send requests but does not know the token, and browsers neither store
// bearer tokens nor send them by themselves. The protocol refuses requests without a token, and no
// response has a CORS header that lets a page read it. On a host whose other users must not learn
// that the daemon runs, do not use this listener. The caller must make sure that the token cannot
// be guessed.
//
// Invariants: requests before the token check use bounded memory and time; the token and query
// strings are never logged; the daemon listens beyond loopback only with a token that the operator
// chose.
package httpd
