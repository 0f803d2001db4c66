// Package catalog keeps tools: code that is stored once and run many times, on input that is checked against a
// schema.
//
//	Catalog.Create, Change   a tool, of which each change makes a version; versions are never altered
//	Catalog.Run              input filtered and validated, then the code's run(input), then its output validated
//	Catalog.Approve, Refuse  what a person decides about a run that is parked until then
//	Catalog.Sweep            ends what waited too long and forgets old runs
//
// A tool's code runs as package code runs all of it: afresh, in a container that is made for it or in one that the
// caller names. Around it stands driver/tool.py, which tells what run gave back or how it failed. Environment
// variables are sealed in the ledger and given to that one process; what is kept of a run has them replaced.
//
// The ledger's buckets:
//
//	tools           owner/tool ID          a name, and which version is current
//	tool_names      owner/name             the tool's ID
//	tool_versions   tool ID/number         what the version is, with its environment sealed
//	tool_runs       owner/run ID           a run, whole
//	tool_runs_live  run ID                 whose it is, while the run is parked or running
//	tool_run_keys   owner/tool ID/key      the run that an idempotency key stands for
//
// A run is written before it begins. One that was running when the daemon died is lost at the next start, and is
// never begun again; one that was parked is parked still.
package toolstore
