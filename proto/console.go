package proto

// A ConsoleLink lets one browser log in to the console, once and within a minute.
type ConsoleLink struct {
	// Where the console is below the daemon's URL, with the secret of the link behind a number sign.
	Path      string `json:"path"`
	ExpiresAt Time   `json:"expires_at"`
}

// A ConsoleLogin exchanges the secret of a link for a cookie.
type ConsoleLogin struct {
	Secret string `json:"secret"`
}

// A ConsoleSession says who a browser is logged in as. KeyID is empty for nobody.
type ConsoleSession struct {
	KeyID     string `json:"key_id"`
	Owner     string `json:"owner"`
	Admin     bool   `json:"admin"`
	ExpiresAt Time   `json:"expires_at"`
}
