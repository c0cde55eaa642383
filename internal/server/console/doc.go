// Package console serves the browser console: its page and assets, the login, and the sessions of
// browsers.
//
// A session is a cookie. Its value is the token of the login and the session's end, sealed with a
// key that is derived from the daemon's own token. The daemon keeps nothing about a session, so all
// daemons with the same token accept it. The listener (internal/server/httpd) opens the cookie and
// treats the token inside as that of an Authorization header, so a revoked token ends its sessions.
//
// Handler serves GET /, GET /console/assets/NAME, POST /console/login, POST /console/logout and GET
// /console/session. None of them needs a token. The page itself has no data: it asks the control
// API.
package console
