// Package data has the commands for files and images: stored files, skills, images, workspaces, jobs, and cp. Package
// cli puts them under the root command. Packages cli/pack and cli/unpack make and read cp's archives.
package data
