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
	"berth/tools/skills/content"
	"berth/tools/skills/provided"
)

// Buckets of the ledger that this package owns.
const (
	bucketSkills   = "skills"
	bucketVersions = "skill_versions"
)

// Prefixes of IDs.
const (
	SkillPrefix   = "skill_"
	VersionPrefix = "skver_"
)

// Sources of skills. The values are those of the hosted API.
const (
	Custom   = "custom"    // uploaded by its owner
	Provided = "anthropic" // in the daemon's directory, available to all owners
)

// Latest stands for the newest version.
const Latest = "latest"

// Limits for one owner.
const (
	maxSkills   = 1000
	maxVersions = 100 // per skill
)

// maxDrafts limits concurrent uploads of all owners, and so their disk space.
const maxDrafts = 16

// Config configures a Store. Dir and Ledger must be set.
type Config struct {
	Dir      string           // for uploaded skills; created if missing
	Ledger   *ledger.DB       // must stay open until after Close
	Provided string           // directory of provided skills; "": none
	MaxBytes int64            // of all files of one version; 0 is 30 MiB (the hosted limit is 30 MB)
	MaxFiles int              // of one version; 0 is 1000
	MaxRefs  int              // maximum skills in one container; 0 is 20
	Quota    int64            // maximum bytes of an owner's archives; 0 is 1 GiB
	Root     string           // directory of skills in containers; "" is /skills
	Log      *slog.Logger     // nil: slog.Default
	Now      func() time.Time // nil: time.Now
}

// A Store holds all skills of a daemon. It is safe for concurrent use.
type Store struct {
	cfg      Config
	provided *provided.Dir // nil: no skills are provided

	drafts chan struct{} // holds one element for each running upload

	mu   sync.Mutex // guards last
	last int64      // number of the newest version; makes numbers unique
}

// A Skill describes the current state of a skill.
type Skill struct {
	ID          string
	DisplayName string
	Source      string  // Custom or Provided
	Latest      Version // newest version; its ID is "" if no version is left
	Created     time.Time
	Updated     time.Time // when its newest version was created
}

// A Version is one version of a skill.
type Version struct {
	ID          string // VersionPrefix…, or the digest of a provided skill
	Number      int64  // creation time in microseconds, which older clients use as the version; 0 for provided skills
	SkillID     string
	Source      string
	Name        string // name of its directory in containers
	Description string
	Created     time.Time
}

// A skillRecord is the ledger's record of a skill. It does not contain the versions.
type skillRecord struct {
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	Name        string    `json:"name"` // the same for all versions
	Created     time.Time `json:"created"`
	By          string    `json:"by,omitempty"` // API key
}

// A versionRecord is the ledger's record of a version.
type versionRecord struct {
	ID          string    `json:"id"`
	Number      int64     `json:"number"`
	Description string    `json:"description"`
	Bytes       int64     `json:"bytes"` // size of the archive
	Created     time.Time `json:"created"`
	By          string    `json:"by,omitempty"` // API key
}

// Open opens the store and removes what a crash has left.
func Open(cfg Config) (*Store, error) {
	cfg.MaxBytes, cfg.MaxFiles = cmp.Or(cfg.MaxBytes, 30<<20), cmp.Or(cfg.MaxFiles, 1000)
	cfg.MaxRefs, cfg.Quota = cmp.Or(cfg.MaxRefs, 20), cmp.Or(cfg.Quota, 1<<30)
	cfg.Root, cfg.Log = cmp.Or(cfg.Root, "/skills"), cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of skills: %w", err)
	}
	s := &Store{cfg: cfg, drafts: make(chan struct{}, maxDrafts)}
	if cfg.Provided != "" {
		var err error
		if s.provided, err = provided.Open(provided.Config{Path: cfg.Provided, MaxBytes: cfg.MaxBytes,
			MaxFiles: cfg.MaxFiles, MaxList: maxSkills, Log: cfg.Log}); err != nil {
			return nil, err
		}
	}
	return s, s.removeOrphans()
}

// MaxBytes returns the maximum size of one version.
func (s *Store) MaxBytes() int64 { return s.cfg.MaxBytes }

func (s *Store) archive(version string) string { return filepath.Join(s.cfg.Dir, version+".zip") }

// removeOrphans removes drafts, and archives without a record.
func (s *Store) removeOrphans() error {
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
			return fmt.Errorf("removing an orphaned file of a skill: %w", err)
		}
	}
	return nil
}

// number returns the current time in microseconds. It never returns the same number twice.
func (s *Store) number() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, s.cfg.Now().UnixMicro())
	return s.last
}

// info describes a skill with its versions, newest first.
func (r skillRecord) info(all ...versionRecord) Skill {
	k := Skill{ID: r.ID, DisplayName: r.DisplayName, Source: Custom, Created: r.Created, Updated: r.Created}
	if len(all) > 0 {
		k.Latest, k.Updated = r.version(all[0]), all[0].Created
	}
	return k
}

func (r skillRecord) version(v versionRecord) Version {
	return Version{ID: v.ID, Number: v.Number, SkillID: r.ID, Source: Custom, Name: r.Name, Description: v.Description,
		Created: v.Created}
}

func ownKey(owner, id string) string { return owner + "/" + id }

// load returns a skill of an owner with its versions, newest first. The error does not reveal whether another owner has
// the skill.
func load(tx *ledger.Tx, owner, id string) (r skillRecord, all []versionRecord, err error) {
	known := false
	if proto.ValidID(SkillPrefix, id) {
		known, err = tx.Get(bucketSkills, ownKey(owner, id), &r)
	}
	if err == nil && !known {
		err = content.NoSkill(id)
	}
	if err == nil {
		all, err = versions(tx, id)
	}
	return r, all, err
}

// versions returns the versions of a skill, newest first.
func versions(tx *ledger.Tx, skill string) (list []versionRecord, err error) {
	err = ledger.Each(tx, bucketVersions, skill+"/", func(_ string, v versionRecord) { list = append(list, v) })
	slices.Reverse(list)
	return list, err
}

// Get returns a skill by its ID. The ID of a provided skill is its name.
func (s *Store) Get(ctx context.Context, owner, id string) (k Skill, err error) {
	if s.isProvided(id) {
		p, err := s.provided.Find(ctx, id)
		return providedSkill(p), err
	}
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, all, err := load(tx, owner, id)
		k = r.info(all...)
		return err
	})
	return k, err
}

// isProvided reports whether a skill with this ID could only be a provided one.
func (s *Store) isProvided(id string) bool {
	return s.provided != nil && !strings.HasPrefix(id, SkillPrefix)
}

// providedSkill returns the Skill of a provided skill, which has only one version.
func providedSkill(p provided.Skill) Skill {
	v := Version{ID: p.Version, SkillID: p.Name, Source: Provided, Name: p.Name, Description: p.Description,
		Created: p.Modified}
	return Skill{ID: p.Name, DisplayName: p.Name, Source: Provided, Latest: v, Created: v.Created, Updated: v.Created}
}

// List returns an owner's skills, newest first, followed by the provided skills, by name. source selects one of the
// two kinds; "" selects both.
func (s *Store) List(ctx context.Context, owner, source string) (list []Skill, err error) {
	if source == "" || source == Custom {
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
				list = append(list, r.info(all...))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if s.provided != nil && (source == "" || source == Provided) {
		for _, p := range s.provided.List(ctx) {
			list = append(list, providedSkill(p))
		}
	}
	return list, nil
}

// Versions returns all versions of a skill, newest first.
func (s *Store) Versions(ctx context.Context, owner, id string) (list []Version, err error) {
	if s.isProvided(id) {
		p, err := s.provided.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		return []Version{providedSkill(p).Latest}, nil
	}
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, all, err := load(tx, owner, id)
		for _, v := range all {
			list = append(list, r.version(v))
		}
		return err
	})
	return list, err
}

// Version returns one version by its ID, its number, or Latest.
func (s *Store) Version(ctx context.Context, owner, id, version string) (Version, error) {
	list, err := s.Versions(ctx, owner, id)
	if err != nil {
		return Version{}, err
	}
	for _, v := range list { // newest first
		if version == Latest || v.is(version) {
			return v, nil
		}
	}
	return Version{}, noVersion(id, version)
}

// is reports whether name is the ID or the number of the version.
func (v Version) is(name string) bool {
	return v.ID == name || v.Number != 0 && fmt.Sprint(v.Number) == name
}

func (r versionRecord) is(name string) bool { return Version{ID: r.ID, Number: r.Number}.is(name) }

func noVersion(skill, version string) error {
	return proto.Errorf(proto.NotFound, "", shown(version), "Skill %q has no version %q; use \"latest\", or a version "+
		"that GET /v1/skills/%s/versions lists.", shown(skill), shown(version), shown(skill))
}

func shown(text string) string { return content.Shown(text) }

// errProvided returns the error for changing a provided skill.
func errProvided(id string) error {
	return proto.Errorf(proto.PermissionDenied, "", shown(id), "Skill %q is provided by the daemon and cannot be "+
		"changed; upload one of your own.", shown(id))
}

// now returns the current time in the API's resolution, so that a stored time equals the time that is shown.
func (s *Store) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }
