// Package code has the commands `berth code` and `berth contexts`: running code, and the interpreters that keep its
// variables. Package cli adds them to the root command. It prints outcomes and saves figures; packages cli/app and
// cli/flags have what it shares with the other commands.
package code
