// Package httpd is the listener that every HTTP protocol of the daemon shares,
// and what decides who gets through to one.
//
// A web page that the operator happens to visit can send requests to a daemon
// on this machine, under any name that it makes resolve to it. So each request
// passes, in this order:
//
//   - the Host check: a loopback name, the address the daemon listens on or
//     was reached at, or a name the operator allowed; otherwise 421. This is
//     what stops DNS rebinding;
//   - the Origin check: none, the daemon's own, or one the operator allowed;
//     otherwise, and for "null", 403. The same for Sec-Fetch-Site;
//   - the token: exactly one header "Authorization: Bearer TOKEN", compared in
//     constant time; otherwise 401, for paths that exist and those that do not
//     alike. A route that is an Admitter may know other tokens, each good for a
//     part of what it serves; Host and Origin are checked all the same.
//
// GET /health needs no token and tells only that the daemon runs, and its
// version; with the token it tells the load too. GET /metrics is in Prometheus
// form. Everything else is given as routes.
//
// Unguarded is for a protocol that must be reachable under any name,
// because a router of its user's stands in front, and that checks a bearer token
// of its own on every path. DNS rebinding gains nothing there: a page can make a
// browser send requests, but not with a token that it does not know, since
// browsers keep no bearer tokens and send none by themselves. What a page asks
// without one is refused by the protocol like anybody's, and no answer has a
// header that would let a page read it. Where a host's other users must not even
// learn that it runs, this is not the listener to use. That the token cannot be
// guessed is for the caller to see to.
//
// The package promises that requests before the token cost bounded memory and
// time, that neither the token nor a query string is ever logged, and that it
// listens beyond loopback only with a token the operator chose.
package httpd
