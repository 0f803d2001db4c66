package skills

import (
	"context"
	"os"

	"berth/state/ledger"
	"berth/tools/skills/content"
)

// Delete removes a skill with all its versions. If onlyEmpty is true, it refuses a skill that has versions.
func (s *Store) Delete(ctx context.Context, owner, id string, onlyEmpty bool) error {
	if err := s.mayChange(ctx, owner, id); err != nil {
		return err
	}
	var gone []versionRecord
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		if _, gone, err = load(tx, owner, id); err != nil {
			return err
		}
		if onlyEmpty && len(gone) > 0 {
			return content.Invalid(id, "Skill `%s` has %d versions; delete those first.", id, len(gone))
		}
		if err := tx.DeletePrefix(bucketVersions, id+"/"); err != nil {
			return err
		}
		return tx.Delete(bucketSkills, ownKey(owner, id))
	})
	if err == nil {
		s.discard(gone)
	}
	return err
}

// DeleteVersion removes one version. It removes the last version only if mayBeLast is true.
func (s *Store) DeleteVersion(ctx context.Context, owner, id, version string, mayBeLast bool) (Version, error) {
	if err := s.mayChange(ctx, owner, id); err != nil {
		return Version{}, err
	}
	var gone versionRecord
	var r skillRecord
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		var all []versionRecord
		if r, all, err = load(tx, owner, id); err != nil {
			return err
		}
		gone = versionRecord{}
		for _, v := range all {
			if v.is(version) {
				gone = v
			}
		}
		switch {
		case gone.ID == "":
			return noVersion(id, version)
		case len(all) == 1 && !mayBeLast:
			return content.Invalid(gone.ID, "Version `%s` is the only one of skill `%s`; delete the skill, or create "+
				"another version first.", gone.ID, id)
		}
		return tx.Delete(bucketVersions, ownKey(id, gone.ID))
	})
	if err != nil {
		return Version{}, err
	}
	s.discard([]versionRecord{gone})
	return r.version(gone), nil
}

// mayChange returns an error if the owner may not change the skill.
func (s *Store) mayChange(ctx context.Context, owner, id string) error {
	k, err := s.Get(ctx, owner, id)
	if err == nil && k.Source == Provided {
		err = errProvided(id)
	}
	return err
}

// discard removes archives whose records are deleted. If that fails, the next start removes them.
func (s *Store) discard(list []versionRecord) {
	for _, v := range list {
		if err := os.Remove(s.archive(v.ID)); err != nil && !os.IsNotExist(err) {
			s.cfg.Log.Warn("an archive of a skill was not removed; the next start does it", "version", v.ID, "error",
				err)
		}
	}
}
