// Package profile keeps the daemons that a user has logged in to, in a file of the user's own: a URL, an API key and a
// CA for each, under a name. `berth login` writes it, and every client command reads it.
package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"berth/proto"
	"berth/state/durable"
)

// Local is the name that means no profile: the daemon of this machine.
const Local = "local"

// A Profile says how to reach one daemon.
type Profile struct {
	URL string `json:"url"`
	Key string `json:"key"`
	CA  string `json:"ca,omitempty"` // PEM text of certificates to trust; "": those of the system
}

// A File has all profiles of a user.
type File struct {
	Current  string             `json:"current,omitempty"` // the one that is used if none is named; "": none
	Profiles map[string]Profile `json:"profiles"`

	path string
}

// Path returns where profiles are kept: berth/profiles.json in the user's directory for settings, as
// os.UserConfigDir has it.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "berth", "profiles.json"), err
}

// Open reads the profiles. A missing file, or a user without a directory for settings, has none.
func Open() (*File, error) {
	f := &File{Profiles: map[string]Profile{}}
	path, err := Path()
	if err != nil {
		return f, nil // a service without HOME
	}
	f.path = path
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading profiles: %w", err)
	}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("the file of profiles %s is damaged (%w); remove it and log in again", path, err)
	}
	return f, nil
}

// Find returns a profile by name. "" means the current one. It returns false if there is none, or the name is Local.
func (f *File) Find(name string) (Profile, bool, error) {
	wanted := name
	if name == "" {
		wanted = f.Current
	}
	if wanted == "" || wanted == Local {
		return Profile{}, false, nil
	}
	p, ok := f.Profiles[wanted]
	if !ok {
		return p, false, proto.Errorf(proto.NotFound, "", wanted, "there is no profile %q; `berth profiles` lists "+
			"those that there are, and `berth login` adds one", wanted)
	}
	return p, true, nil
}

// validName is what a profile may be called.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Set adds a profile or replaces it, and makes it the current one.
func (f *File) Set(name string, p Profile) error {
	if !validName.MatchString(name) || name == Local {
		return proto.Errorf(proto.InvalidArgument, "", "name", "%q is no name for a profile; use 1 to 64 letters, "+
			"digits, dots, dashes and underscores, but not %q", name, Local)
	}
	f.Profiles[name], f.Current = p, name
	return f.save()
}

// Use makes a profile the current one. Local takes that away.
func (f *File) Use(name string) error {
	if _, _, err := f.Find(name); err != nil {
		return err
	}
	if f.Current = name; name == Local {
		f.Current = ""
	}
	return f.save()
}

// Remove removes a profile with its key. "" means the current one.
func (f *File) Remove(name string) (string, error) {
	if name == "" {
		name = f.Current
	}
	if _, ok, err := f.Find(name); err != nil {
		return "", err
	} else if !ok {
		return "", proto.Errorf(proto.NotFound, "", "profile", "no profile is in use; name one that `berth profiles` "+
			"lists")
	}
	delete(f.Profiles, name)
	if f.Current == name {
		f.Current = ""
	}
	return name, f.save()
}

// Names returns the names of all profiles, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Profiles)) }

// save writes the file, which only the user can read, because it has keys.
func (f *File) save() error {
	if f.path == "" {
		return errors.New("there is no directory for settings; set HOME or XDG_CONFIG_HOME")
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(f.path, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}
