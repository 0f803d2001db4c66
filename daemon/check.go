package daemon

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"berth/api"
	"berth/api/ports/address"
	"berth/egress/proxy"
	"berth/proto"
	"berth/runtime/images"
)

// Check refuses values with which no daemon can start, as far as that is known without opening anything. Its error
// begins with the flag that it is about.
func (c Config) Check() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--listen: %q is not an address and a port; write it as 127.0.0.1:7117", c.Listen)
	}
	if c.Domain != "" {
		if _, err := address.Parse(c.Domain); err != nil {
			return flagError("domain", err)
		}
	}
	if _, err := api.ParseOrigins(c.Origins); err != nil {
		return flagError("origin", err)
	}
	cfg := c.Egress
	cfg.Log = c.Log
	if _, err := proxy.New(cfg); err != nil {
		return flagError("", err)
	}
	if _, err := proxy.NewDialer(c.ToolCallbacks, c.Egress.Resolver); err != nil {
		return flagError("tools-callback", err)
	}
	if _, err := images.ParseMirrors(c.RegistryMirrors); err != nil {
		return flagError("registry-mirror", err)
	}
	return nil
}

// flagError returns an error that begins with a flag. Without a flag it is the one that the error itself names.
func flagError(flag string, err error) error {
	var e *proto.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if flag == "" {
		flag = e.Item
	}
	if strings.HasPrefix(e.Message, "--"+flag+" ") {
		return errors.New(e.Message)
	}
	return fmt.Errorf("--%s: %s", flag, e.Message)
}
