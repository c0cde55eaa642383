package main

import (
	"log/slog"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
)

// reloader reads the configuration of a running daemon again, when SIGHUP comes.
// It puts the settings in force that config.Changes calls live.
type reloader struct {
	app     *app
	started *config.Config // all other settings are in force as they are here
	current *config.Config // the last one that was read without a mistake
	load    func() (*config.Config, error)
	level   *slog.LevelVar
	log     *slog.Logger
	engine  *engine.Engine
	servers []*httpd.Server
}

// again reads the configuration and reports in the log what became of it.
func (r *reloader) reload() {
	next, err := r.load()
	if err == nil {
		err = r.apply(next)
	}
	if err != nil {
		for _, e := range cli.Each(err) {
			r.log.Error("the configuration was not reloaded: the old one stays in force", "error", e)
		}
		return
	}
	live, _ := config.Changes(r.current, next)
	_, restart := config.Changes(r.started, next)
	r.current = next
	r.log.Info("reloaded the configuration and the tokens", "changed", live)
	if len(restart) > 0 {
		r.log.Warn("settings were changed that a running daemon cannot take", "settings", restart, "next", "restart the daemon")
	}
}

// apply puts the live settings in force: all of them, or on error none.
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
	for _, put := range puts {
		put()
	}
	r.level.Set(cfg.Log.Slog())
	r.app.announce(token)
	return nil
}
