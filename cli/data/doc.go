// Package data has the commands for files and images: stored files, skills, images, workspaces, jobs and cp. Package
// cli adds them to the root command. Packages cli/pack and cli/unpack make and read the archives of cp.
package data
