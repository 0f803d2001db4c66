// Package skills stores Skills. A skill is a directory with a SKILL.md file, which a model reads, and the files that
// SKILL.md refers to.
//
//	NewDraft, Draft.Add, Draft.Create   upload a skill: file by file, or as one zip archive
//	Store.Mount                         mount skills into a container, each at /skills/<name>/
//
// There are two kinds. Custom skills are uploaded and belong to an owner; their versions are immutable. Provided
// skills are available to all owners: the operator of the daemon has a directory with one skill in each subdirectory.
// The store reads them on each request, so a change takes effect without a restart. The version of a provided skill
// is a digest of its content.
//
// Files below Config.Dir:
//
//	draft-*            unfinished uploads; Open removes them
//	<version ID>.zip   content of a version; names are relative to the skill's directory
//
// Buckets of the ledger:
//
//	skills           owner/skill ID          a skill
//	skill_versions   skill ID/version ID     one of its versions; IDs sort by time
//
// An archive is written before its record and removed after it. So a crash can only leave an archive without a
// record, which Open removes.
package skills
