// Package artifacts keeps the manifest of each job: the files below /workspace/<job_id>/, which exec made or changed
// them, and which of them are stored files. Sessions call it through session.Jobs; the edges and the gateway read
// manifests and publish files.
//
// A job is a directory and a manifest. After every exec, artifacts lists the directory in the container and compares
// it with the manifest. It hashes new and changed files and attributes them to an exec. It publishes the files below
// the exec's $OUTPUT_DIR to the Files API, notes what cannot be published, and writes a copy of the manifest into the
// container, for programs there. The record in the ledger is the truth.
//
//	jobs/      <workspace>/<job>         record: how many files, and when
//	job_files/ <workspace>/<job>/<path>  entry: one file
//	job_execs/ <workspace>/<job>/<exec>  proto.JobExec: the log of commands
//	inputs/    <workspace>               which stored file has which name in $INPUT_DIR
//
// Out of scope: the bytes of stored files (files) and access to the container (session).
package artifacts
