// Package skills keeps Skills: directories with a SKILL.md, which a model reads, and whatever else it needs for the
// work that this tells of.
//
//	NewDraft, Draft.Add, Draft.Create   a skill is uploaded: file by file, or as one zip archive
//	Store.Mount                         skills are put into a container, each at /skills/<name>/
//
// Some are the owner's: uploaded, in versions that are never altered. Others are everybody's: what the daemon's
// operator has in a directory, one skill in each directory below it. Those are looked at when they are asked for, so
// that a change is seen without a restart; the version of one is a digest of all that it holds.
//
// On disk, below Config.Dir:
//
//	draft-*            uploads on their way in; whatever is here at Open is removed
//	<version ID>.zip   what a version holds, with names as they are below the skill's directory
//
// The ledger's buckets:
//
//	skills           owner/skill ID          a skill
//	skill_versions   skill ID/version ID     one of its versions; IDs sort by time
//
// The archive is there before the record, and goes after it: what a crash leaves is an archive without a record,
// which Open removes.
package skills
