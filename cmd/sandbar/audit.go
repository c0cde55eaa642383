package main

import (
	"log/slog"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/audit"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// openAudit opens the audit log: a file, a syslog server, or both. It is nil if none is set.
func openAudit(cfg *config.Config, log *slog.Logger) (_ engine.Auditor, closeAll func(), err error) {
	var logs []interface {
		engine.Auditor
		Close() error
	}
	closeAll = func() {
		for _, l := range logs {
			if err := l.Close(); err != nil {
				log.Error("the audit log is not complete", "error", err)
			}
		}
	}
	if cfg.Audit.File != "" {
		l, err := audit.Open(audit.Options{Path: cfg.Audit.File, MaxBytes: cfg.Audit.MaxSize, Keep: int(cfg.Audit.Keep), Logger: log})
		if err != nil {
			return nil, nil, err
		}
		logs = append(logs, l)
	}
	if cfg.Audit.Syslog != "" {
		network, address, err := cfg.Audit.SyslogAddress()
		var l *audit.Syslog
		if err == nil {
			l, err = audit.OpenSyslog(network, address, log)
		}
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		logs = append(logs, l)
	}
	switch len(logs) {
	case 0:
		return nil, closeAll, nil
	case 1:
		return logs[0], closeAll, nil
	}
	return audit.Both(logs[0], logs[1]), closeAll, nil
}
