// Package admin has the commands for operators of a daemon: API keys, the audit log, keys for secrets, sweeps,
// versions, doctor, attack and bench. Package cli adds them to the root command.
package admin
