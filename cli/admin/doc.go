// Package admin has the commands for whoever runs a daemon: API keys, the audit log, keys for secrets, sweeps,
// versions, doctor, attack and bench. Package cli puts them under the root command.
package admin
