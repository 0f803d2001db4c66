// Package records sets the TXT record by which an ACME authority checks that a domain is ours (DNS-01, RFC 8555,
// section 8.4), by a dynamic update (RFC 2136), at an acme-dns server or by a program of the operator's.
package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Provider changes the values of one name. A name may have several values at once: those of a domain and of the
// names below it.
type Provider interface {
	Add(ctx context.Context, name, value string) error    // name ends with a dot
	Remove(ctx context.Context, name, value string) error // no error if the value is not there
}

// A Setter sets records and waits until all name servers of the domain have them.
type Setter struct {
	provider Provider
	name     string        // where the records are; "": where the authority looks
	check    string        // HOST:PORT of the name server to ask; "": all of the domain; "none": none
	wait     time.Duration // how long a record may take; with "none": how long it is waited for
}

// The most time for a record to appear, and the time of one change.
const (
	defaultWait = 2 * time.Minute
	mostWait    = time.Hour
	changeLimit = 2 * time.Minute
)

// providers has for each kind of provider its settings and how to make it.
var providers = map[string]struct {
	settings []string
	open     func(map[string]string) (Provider, error)
}{
	"rfc2136":  {[]string{"server", "zone", "key", "secret", "algorithm"}, newUpdate},
	"acme-dns": {[]string{"url", "username", "password", "subdomain"}, newAcmeDNS},
	"exec":     {[]string{"program"}, newProgram},
}

// common are the settings of all providers.
var common = []string{"name", "check", "wait"}

// envPrefix begins the settings that become variables of the operator's program.
const envPrefix = "env."

// IsSetting reports whether a setting is one of a provider: of any one, or for "" of no provider at all.
func IsSetting(name string) bool {
	known := slices.Contains(common, name) || strings.HasPrefix(name, envPrefix)
	for _, p := range providers {
		known = known || slices.Contains(p.settings, name)
	}
	return known
}

// New returns the Setter of a provider. settings are the lines of the operator's file that are for it; another one is
// an error.
func New(kind string, settings map[string]string) (*Setter, error) {
	p, ok := providers[kind]
	if !ok {
		return nil, fmt.Errorf("%q is no DNS provider; use %s", kind,
			strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !slices.Contains(common, name) && !slices.Contains(p.settings, name) &&
			(kind != "exec" || !strings.HasPrefix(name, envPrefix)) {
			return nil, fmt.Errorf("%s is no setting of the DNS provider %s; it has %s", name, kind,
				strings.Join(append(slices.Clone(p.settings), common...), ", "))
		}
	}
	s := &Setter{name: settings["name"], check: settings["check"], wait: defaultWait}
	if text := settings["wait"]; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > mostWait {
			return nil, fmt.Errorf("wait: %q is no time up to %s; write it as 90s", text, mostWait)
		}
		s.wait = d
	}
	if s.check != "" && s.check != "none" {
		if err := checkServer("check", s.check); err != nil {
			return nil, err
		}
	}
	var err error
	s.provider, err = p.open(settings)
	return s, err
}

// required returns an error that names the first of these settings that is missing.
func required(settings map[string]string, names ...string) error {
	for _, name := range names {
		if settings[name] == "" {
			return fmt.Errorf("the setting %s is missing", name)
		}
	}
	return nil
}

// at returns the name of the record for the name that the authority looks at.
func (s *Setter) at(name string) string {
	if s.name != "" {
		name = s.name
	}
	return strings.TrimSuffix(name, ".") + "."
}

// Set sets a record.
func (s *Setter) Set(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	if err := s.provider.Add(ctx, s.at(name), value); err != nil {
		return fmt.Errorf("setting the TXT record %s: %w", s.at(name), err)
	}
	return nil
}

// Unset removes a record.
func (s *Setter) Unset(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	if err := s.provider.Remove(ctx, s.at(name), value); err != nil {
		return fmt.Errorf("removing the TXT record %s: %w", s.at(name), err)
	}
	return nil
}

// lookAgain is the time between two looks at the name servers.
const lookAgain = 2 * time.Second

// Await returns when all name servers of the domain have the record. An authority that looks earlier fails the order,
// and counts it.
func (s *Setter) Await(ctx context.Context, name, value string) error {
	limited, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if s.check == "none" {
		<-limited.Done()
		return ctx.Err()
	}
	for {
		missing := s.missing(limited, name, value)
		if missing == nil {
			return nil
		}
		select {
		case <-limited.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("the TXT record %s was set, and is not seen after %s: %w; check "+
				"the settings zone, name and check, or set a longer wait", s.at(name), s.wait, missing))
		case <-time.After(lookAgain):
		}
	}
}

// MostWait returns how long a record may take.
func (s *Setter) MostWait() time.Duration { return s.wait }
