package skills

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// The ledger's buckets that this package owns.
const (
	bucketSkills   = "skills"
	bucketVersions = "skill_versions"
)

// The beginnings of IDs.
const (
	SkillPrefix   = "skill_"
	VersionPrefix = "skver_"
)

// Where a skill comes from, in the words of the API whose skills these are.
const (
	Custom   = "custom"    // uploaded, and its owner's
	Provided = "anthropic" // in the daemon's directory, and everybody's
)

// Latest stands for whatever version is the newest.
const Latest = "latest"

// Bounds of what is kept of one owner.
const (
	maxSkills   = 1000
	maxVersions = 100 // of one skill
)

// maxDrafts bounds uploads under way, of all owners, and so the room for what is not stored yet.
const maxDrafts = 16

// Config is what Open needs. Dir and Ledger must be set.
type Config struct {
	Dir      string           // for what was uploaded; made if missing
	Ledger   *ledger.DB       // stays open until after Close
	Provided string           // directory of skills that everybody has; "": there are none
	MaxBytes int64            // of all files of one version; 0 is 30 MiB, the hosted limit of 30 MB read generously
	MaxFiles int              // of one version; 0 is 1000
	MaxRefs  int              // skills in one container at once; 0 is 20
	Quota    int64            // bytes of all archives of one owner; 0 is 1 GiB
	Root     string           // where containers have skills; "" is /skills
	Log      *slog.Logger     // nil: slog.Default
	Now      func() time.Time // nil: time.Now
}

// A Store is all skills of a daemon. It is safe for concurrent use.
type Store struct {
	cfg   Config
	shelf *shelf // nil: nothing is provided

	drafts chan struct{} // holds one for each upload under way

	mu   sync.Mutex // guards last
	last int64      // the newest version's number, so that each has its own
}

// A Skill is one as it is now.
type Skill struct {
	ID          string
	DisplayName string
	Source      string  // Custom or Provided
	Latest      Version // the newest; without an ID where none is left
	Created     time.Time
	Updated     time.Time // when its newest version was made
}

// A Version is one version of a skill.
type Version struct {
	ID          string // VersionPrefix…; of a provided skill its digest
	Number      int64  // when it was made, in microseconds, which is how older clients call it; 0 for provided skills
	SkillID     string
	Source      string
	Name        string // of its directory in containers
	Description string
	Created     time.Time
}

// A skillRecord is what the ledger keeps of a skill beside its versions.
type skillRecord struct {
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	Name        string    `json:"name"` // which all versions have
	Created     time.Time `json:"created"`
	By          string    `json:"by,omitempty"` // API key
}

// A versionRecord is what the ledger keeps of a version.
type versionRecord struct {
	ID          string    `json:"id"`
	Number      int64     `json:"number"`
	Description string    `json:"description"`
	Bytes       int64     `json:"bytes"` // of the archive
	Created     time.Time `json:"created"`
	By          string    `json:"by,omitempty"` // API key
}

// Open opens the skills that there are, and removes what a crash left.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of skills: %w", err)
	}
	s := &Store{cfg: cfg, drafts: make(chan struct{}, maxDrafts)}
	if cfg.Provided != "" {
		s.shelf = newShelf(cfg)
		if err := s.shelf.check(); err != nil {
			return nil, err
		}
	}
	return s, s.tidy()
}

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 30<<20)
	c.MaxFiles = cmp.Or(c.MaxFiles, 1000)
	c.MaxRefs = cmp.Or(c.MaxRefs, 20)
	c.Quota = cmp.Or(c.Quota, 1<<30)
	c.Root = cmp.Or(c.Root, "/skills")
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// MaxBytes is the limit of one version.
func (s *Store) MaxBytes() int64 { return s.cfg.MaxBytes }

func (s *Store) archive(version string) string { return filepath.Join(s.cfg.Dir, version+".zip") }

// tidy removes drafts, and archives that no record names.
func (s *Store) tidy() error {
	known := map[string]bool{}
	err := s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketVersions, "", func(_ string, v versionRecord) {
			known[v.ID+".zip"] = true
			s.last = max(s.last, v.Number)
		})
	})
	if err != nil {
		return fmt.Errorf("reading the records of skills: %w", err)
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("reading the directory of skills: %w", err)
	}
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		if err := os.Remove(filepath.Join(s.cfg.Dir, e.Name())); err != nil {
			return fmt.Errorf("removing what a crash left of a skill: %w", err)
		}
	}
	return nil
}

// number is the present in microseconds, and never the same again.
func (s *Store) number() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, s.cfg.Now().UnixMicro())
	return s.last
}

func (r skillRecord) info(v versionRecord) Skill {
	k := Skill{ID: r.ID, DisplayName: r.DisplayName, Source: Custom, Created: r.Created, Updated: r.Created}
	if v.ID != "" {
		k.Latest, k.Updated = r.version(v), v.Created
	}
	return k
}

func (r skillRecord) version(v versionRecord) Version {
	return Version{ID: v.ID, Number: v.Number, SkillID: r.ID, Source: Custom, Name: r.Name, Description: v.Description,
		Created: v.Created}
}

func ownKey(owner, id string) string { return owner + "/" + id }

// find is an owner's skill. Somebody else's is as unknown as one that never was.
func find(tx *ledger.Tx, owner, id string) (r skillRecord, err error) {
	if !proto.ValidID(SkillPrefix, id) {
		return r, noSkill(id)
	}
	known, err := tx.Get(bucketSkills, ownKey(owner, id), &r)
	if err == nil && !known {
		err = noSkill(id)
	}
	return r, err
}

// versions are those of a skill, newest first.
func versions(tx *ledger.Tx, skill string) (list []versionRecord, err error) {
	err = ledger.Each(tx, bucketVersions, skill+"/", func(_ string, v versionRecord) { list = append(list, v) })
	slices.Reverse(list)
	return list, err
}

// newest is the first of a list of versions, or none.
func newest(list []versionRecord) (v versionRecord) {
	if len(list) > 0 {
		v = list[0]
	}
	return v
}

// Get describes a skill by its ID; that of a provided one is its name.
func (s *Store) Get(ctx context.Context, owner, id string) (k Skill, err error) {
	if s.shelf != nil && !strings.HasPrefix(id, SkillPrefix) {
		v, err := s.shelf.find(ctx, id)
		return v.skill(), err
	}
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, err := find(tx, owner, id)
		if err != nil {
			return err
		}
		list, err := versions(tx, id)
		k = r.info(newest(list))
		return err
	})
	return k, err
}

// List describes an owner's skills, newest first, and after them those that are provided, by name. source, if not
// empty, is the one that is asked for.
func (s *Store) List(ctx context.Context, owner, source string) (list []Skill, err error) {
	if source == "" || source == Custom {
		if list, err = s.own(owner); err != nil {
			return nil, err
		}
	}
	if s.shelf != nil && (source == "" || source == Provided) {
		for _, v := range s.shelf.list(ctx) {
			list = append(list, v.skill())
		}
	}
	return list, nil
}

// own are the skills that an owner has uploaded.
func (s *Store) own(owner string) (list []Skill, err error) {
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		var records []skillRecord
		if err := ledger.Each(tx, bucketSkills, owner+"/", func(_ string, r skillRecord) {
			records = append(records, r)
		}); err != nil {
			return err
		}
		for _, r := range slices.Backward(records) {
			all, err := versions(tx, r.ID)
			if err != nil {
				return err
			}
			list = append(list, r.info(newest(all)))
		}
		return nil
	})
	return list, err
}

// Versions describes all versions of a skill, newest first.
func (s *Store) Versions(ctx context.Context, owner, id string) (list []Version, err error) {
	if s.shelf != nil && !strings.HasPrefix(id, SkillPrefix) {
		v, err := s.shelf.find(ctx, id)
		if err != nil {
			return nil, err
		}
		return []Version{v}, nil
	}
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, err := find(tx, owner, id)
		if err != nil {
			return err
		}
		all, err := versions(tx, id)
		for _, v := range all {
			list = append(list, r.version(v))
		}
		return err
	})
	return list, err
}

// Version describes one version, by its ID, its number, or Latest.
func (s *Store) Version(ctx context.Context, owner, id, version string) (Version, error) {
	list, err := s.Versions(ctx, owner, id)
	if err != nil {
		return Version{}, err
	}
	for _, v := range list { // the newest comes first
		if version == Latest || v.is(version) {
			return v, nil
		}
	}
	return Version{}, noVersion(id, version)
}

// is reports whether a client's name for a version means this one.
func (v Version) is(name string) bool {
	return v.ID == name || v.Number != 0 && fmt.Sprint(v.Number) == name
}

func (r versionRecord) is(name string) bool { return Version{ID: r.ID, Number: r.Number}.is(name) }

// longestShown bounds what an error repeats of a request.
const longestShown = 100

func shown(text string) string {
	if len(text) > longestShown {
		return text[:longestShown] + "…"
	}
	return text
}

func noSkill(id string) error {
	return proto.Errorf(proto.NotFound, "", shown(id), "Skill %q not found; GET /v1/skills lists those that there are.",
		shown(id))
}

func noVersion(skill, version string) error {
	return proto.Errorf(proto.NotFound, "", shown(version), "Skill %q has no version %q; use \"latest\", or one of "+
		"those that GET /v1/skills/%s/versions lists.", shown(skill), shown(version), shown(skill))
}

// provided says why a skill of the daemon's directory is not changed.
func provided(id string) error {
	return proto.Errorf(proto.PermissionDenied, "", shown(id), "Skill %q is provided by the daemon and cannot be "+
		"changed; upload one of your own.", shown(id))
}

// now is the present in the wire's resolution, so that what is stored equals what is shown.
func (s *Store) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }
