package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"berth/daemon"
	"berth/daemon/settings"
)

// A published configuration is what a running daemon says about itself in its data directory, for `berth config show`
// and `berth up`. The file holds no secret, but names files that do.
type published struct {
	PID    int                         `json:"pid"`
	Birth  string                      `json:"birth"` // of the process, in clock ticks after the boot
	File   string                      `json:"file"`  // the configuration file; "" is none
	Values map[string]publishedSetting `json:"values"`
}

type publishedSetting struct {
	Texts []string        `json:"texts"`
	From  settings.Source `json:"from"`
}

// errNotRunning says that no daemon runs over a data directory.
var errNotRunning = errors.New("no daemon runs over the data directory")

// publishedFile returns where a daemon publishes its configuration.
func publishedFile(dir string) string { return filepath.Join(dir, "config.json") }

// publish writes the file of this process. A reader sees the old file or the new one.
func publish(dir, file string, o *options) error {
	p := published{PID: os.Getpid(), File: file, Values: make(map[string]publishedSetting)}
	var err error
	if p.Birth, err = birthOf(p.PID); err != nil {
		return err
	}
	for _, key := range settings.Keys(o.flags) {
		p.Values[key] = publishedSetting{settings.Text(o.flags.Lookup(key).Value), o.source(key)}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".config-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, shareWithGroup(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), publishedFile(dir))
}

// shareWithGroup lets the members of the group read a file that only root can read so far.
func shareWithGroup(f *os.File) error {
	group := daemon.Group()
	if group < 0 {
		return nil
	}
	return errors.Join(f.Chown(-1, group), f.Chmod(0o640))
}

// readPublished returns the configuration of the daemon over dir, or errNotRunning. A killed daemon leaves its file.
func readPublished(dir string) (p published, err error) {
	text, err := os.ReadFile(publishedFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return p, errNotRunning
	}
	if err != nil {
		return p, fmt.Errorf("the configuration of the running daemon cannot be read: %w", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s: %w", publishedFile(dir), err)
	}
	if birth, err := birthOf(p.PID); err != nil || birth != p.Birth {
		return p, errNotRunning
	}
	return p, nil
}

// birthOf returns when a process was started. With the PID it identifies a process until the next boot.
func birthOf(pid int) (string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The name of the program, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startTime = 19 // field 22 of proc(5); the first one here is field 3
	if len(fields) <= startTime {
		return "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return string(fields[startTime]), nil
}

// inputs returns what the daemon would load now: its flags and its environment with the file as it is.
func (p published) inputs() inputs {
	in := inputs{file: p.File, environment: settings.Values{}, given: settings.Values{}}
	for key, s := range p.Values {
		switch s.From.Kind {
		case settings.Environment:
			in.environment[key] = settings.Value{Texts: s.Texts, Source: s.From}
		case settings.Flag:
			in.given[key] = settings.Value{Texts: s.Texts, Source: s.From}
		}
	}
	return in
}

// options returns the values of the daemon.
func (p published) options() *options {
	all := make(settings.Values)
	for key, s := range p.Values {
		if s.From.Kind != settings.Default {
			all[key] = settings.Value{Texts: s.Texts, Source: s.From}
		}
	}
	o, _ := apply([]settings.Values{all}) // a daemon has started with them
	return o
}

// show returns the settings of the daemon beside those that a reload or a restart would bring; next may be nil.
func (p published) show(next *options) []shownSetting {
	had := p.options()
	list := showOptions(had)
	for i, s := range list {
		if next == nil || had.literal(s.Key) == next.literal(s.Key) {
			continue
		}
		list[i].Next, list[i].Needs = next.shown(s.Key), "restart"
		if reloadable(s.Key) {
			list[i].Needs = "reload"
		}
	}
	return list
}
