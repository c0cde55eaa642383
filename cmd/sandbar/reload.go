package main

import (
	"log/slog"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/console"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/peers"
)

// reloader reloads the configuration of a running daemon on SIGHUP. It applies the
// settings that config.Changes calls live.
type reloader struct {
	app      *app
	started  *config.Config // has the values in force of all settings that are not live
	current  *config.Config // the last valid one
	load     func() (*config.Config, error)
	level    *slog.LevelVar
	log      *slog.Logger
	engine   *engine.Engine
	servers  []*httpd.Server
	peers    *peers.Peers                  // nil: there are no other daemons
	sessions *console.Sessions             // nil: there is no console
	loaded   atomic.Pointer[config.Config] // current, for requests
}

// settings returns the settings in force. It may be called concurrently with reload.
func (r *reloader) settings() []config.Setting { return config.Settings(r.started, r.loaded.Load()) }

// reload loads and applies the configuration, and logs the result.
func (r *reloader) reload() {
	next, err := r.load()
	if err == nil {
		err = r.apply(next)
	}
	if err != nil {
		for _, e := range cli.Each(err) {
			r.log.Error("cannot reload the configuration; the old one stays in force", "error", e)
		}
		return
	}
	live, _ := config.Changes(r.current, next)
	_, restart := config.Changes(r.started, next)
	r.current = next
	r.loaded.Store(next)
	r.log.Info("reloaded the configuration and the tokens", "changed", live)
	if len(restart) > 0 {
		r.log.Warn("changed settings need a restart", "settings", restart, "next", "restart the daemon")
	}
}

// apply applies all live settings, or on error none.
func (r *reloader) apply(cfg *config.Config) error {
	token, err := r.app.token(cfg, r.log)
	if err != nil {
		return err
	}
	clients, err := cfg.ClientTokens(token.Value)
	if err != nil {
		return err
	}
	var puts []func()
	for _, s := range r.servers {
		put, err := s.Replace(httpd.Options{Token: token.Value, TokenChosen: token.Explicit, Clients: clients,
			AllowedHosts: cfg.AllowedHosts, AllowedOrigins: cfg.AllowedOrigins, MetricsOpen: cfg.MetricsOpen && s == r.servers[0]})
		if err != nil {
			return err
		}
		puts = append(puts, put)
	}
	if err := r.engine.SetClients(clientLimits(cfg)); err != nil {
		return err
	}
	if err := r.engine.SetTenants(tenantLimits(cfg)); err != nil {
		return err
	}
	for _, put := range puts {
		put()
	}
	if r.peers != nil {
		r.peers.SetToken(token.Value)
	}
	if r.sessions != nil {
		r.sessions.SetToken(token.Value)
	}
	r.level.Set(cfg.Log.Slog())
	r.app.announce(token)
	return nil
}
