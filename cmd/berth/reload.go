package main

import (
	"slices"
	"strings"

	"berth/daemon"
	"berth/daemon/settings"
)

// reloadable reports whether a setting can change while the daemon runs.
func reloadable(key string) bool { return key == "debug" || slices.Contains(daemon.Reloadable, key) }

// publish writes the settings in effect into the data directory.
func (s *service) publish() error { return publish(s.dir, s.in.file, s.options) }

// reload reads the configuration again and applies what can change. A configuration with faults changes nothing.
func (s *service) reload() {
	s.told(s.manager.Reloading())
	defer func() { s.told(s.manager.Ready(s.status())) }()
	next, cfg, err := load(s.in)
	if err != nil {
		s.log.Error("the configuration has faults, and nothing of it is applied; `berth config check` lists them",
			"file", s.in.file, "error", err)
		return
	}
	// Of a value that waits for a restart, the daemon keeps the old one.
	applied, later := s.split(next)
	if err := s.daemon.Reload(cfg); err != nil {
		s.log.Error("the new configuration cannot be applied, and nothing of it is", "error", err)
		return
	}
	s.setLevel(next)
	s.options = s.merge(next, later)
	if err := s.publish(); err != nil {
		s.log.Error("`berth config show` does not know of the reload", "error", err)
	}
	s.log.Info("the configuration was read again", "file", s.in.file, "applied", strings.Join(applied, " "))
	if len(later) > 0 {
		s.log.Warn("these settings need a restart and keep their old values until then", "settings",
			strings.Join(later, " "))
	}
}

// split tells the changed settings that can be applied from those that need a restart.
func (s *service) split(next *options) (applied, later []string) {
	for _, key := range s.options.differing(next) {
		if reloadable(key) {
			applied = append(applied, key)
		} else {
			later = append(later, key)
		}
	}
	return applied, later
}

// merge returns the settings in effect after a reload: the next ones, but of those in later the old ones.
func (s *service) merge(next *options, later []string) *options {
	merged := next.values()
	for _, key := range later {
		delete(merged, key)
		if v, ok := s.options.values()[key]; ok {
			merged[key] = v
		}
	}
	o, _ := apply([]settings.Values{merged}) // each value was taken before
	return o
}

// values returns the settings that have not their default.
func (o *options) values() settings.Values {
	all := make(settings.Values)
	for key, source := range o.from {
		all[key] = settings.Value{Texts: settings.Text(o.flags.Lookup(key).Value), Source: source}
	}
	return all
}
