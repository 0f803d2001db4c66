// Package toolstore keeps stored tools: code that is stored once and run many times, on input that is checked against
// a schema.
//
//	Store.Create, Change   a tool; each change makes a version, and versions never change
//	Store.Run              filter and validate the input, run the code's run(input), validate the output
//	Store.Approve, Refuse  a person's decision on a run that is delayed until then
//	Store.Sweep            ends what waited too long and forgets old runs
//
// A Runner runs a tool's code: each time in a fresh interpreter, in a new container or in one that the caller names.
// Package program surrounds the code and reads what run returned or how it failed; package field checks input and
// output. Environment variables are sealed in the ledger and given to that one process. The record of a run has them
// replaced.
//
// The ledger's buckets:
//
//	tools           owner/tool ID          a name, and which version is current
//	tool_names      owner/name             the tool's ID
//	tool_versions   tool ID/number         the version, with its environment sealed
//	tool_runs       owner/run ID           a run, whole
//	tool_runs_live  run ID                 its owner, while the run waits for approval or is running
//	tool_run_keys   owner/tool ID/key      the run of an idempotency key
//
// A run is recorded before it starts. A run that was running when the daemon died is lost at the next start, and is
// never started again. A run that waits for approval goes on waiting.
package toolstore
