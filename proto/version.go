package proto

// Version is the version of berth, as the API and the command line report it.
const Version = "0.1.0"

// FullVersion returns Version with the description of a build as build metadata, such as "0.1.0+g7c3f1a2". A build
// that is "" or "dev" adds nothing.
func FullVersion(build string) string {
	if build == "" || build == "dev" {
		return Version
	}
	return Version + "+" + build
}
