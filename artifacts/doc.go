// Package artifacts keeps the books of jobs: what lies under
// /workspace/<job_id>/, which exec made or changed it, and what of it became a stored file.
//
// A job is a directory and a manifest. After every exec its directory is walked inside the
// container and compared with what was known; what is new or changed is hashed and
// attributed, the top-level files of the exec's $OUTPUT_DIR are published to the Files API, and
// manifest.json is written beside the files. The record in the ledger is the truth; the file is a
// copy of it for whoever works in the container.
//
//	jobs/      <workspace>/<job>         record: the files
//	job_execs/ <workspace>/<job>/<exec>  proto.JobExec: the log of commands
//	inputs/    <workspace>               which stored file has which name in $INPUT_DIR
package artifacts
