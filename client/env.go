package client

import (
	"cmp"
	"os"
	"strings"
	"time"

	"berth/proto"
)

// UsualHost is where a daemon listens unless it is told otherwise.
const UsualHost = "http://127.0.0.1:7117"

// usualKeyFile is where a daemon on this machine keeps its first key.
const usualKeyFile = "/var/lib/berth/api-key"

// usualWait is how long a client of the environment waits for a daemon that is away.
const usualWait = 30 * time.Second

// FromEnv returns a client of the daemon that the environment names: BERTH_URL or BERTH_HOST, by default the one of
// this machine, with the key in BERTH_API_KEY or in the file BERTH_API_KEY_FILE, by default the daemon's own file. It
// waits for a daemon that is away for 30 seconds, and for a limit of rate.
func FromEnv() (*Client, error) {
	key := os.Getenv("BERTH_API_KEY")
	if key == "" {
		named := os.Getenv("BERTH_API_KEY_FILE")
		text, err := os.ReadFile(cmp.Or(named, usualKeyFile))
		if err != nil && named != "" {
			return nil, proto.Invalid("BERTH_API_KEY_FILE", "reading the API key: %v", err)
		}
		key = strings.TrimSpace(string(text)) // without one, the daemon says what is missing
	}
	return New(Config{Host: cmp.Or(os.Getenv("BERTH_URL"), os.Getenv("BERTH_HOST"), UsualHost), Key: key,
		Wait: usualWait, WaitForRate: true})
}
