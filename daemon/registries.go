package daemon

import (
	"context"

	"berth/proto"
	"berth/runtime/images"
	"berth/state/registries"
)

// A registryKeeper has the daemon's credentials for registries, and pushes with them.
type registryKeeper struct {
	*registries.Store
	registryClient
}

// openRegistries opens the credentials, and reads the mirrors. The image store asks for them from now on.
func (d *Daemon) openRegistries() (err error) {
	if d.registries.Store, err = registries.Open(d.books, d.secrets); err != nil {
		return err
	}
	d.registries.registryClient = d.machine.pushes
	d.machine.pushes.UseCredentials(d.registries.For)
	mirrors, err := images.ParseMirrors(d.cfg.RegistryMirrors)
	d.machine.pushes.UseMirrors(mirrors)
	return err
}

// Login keeps credentials that their registry takes.
func (k registryKeeper) Login(ctx context.Context, host string, req proto.SetRegistry) (proto.Registry, error) {
	host, err := registries.HostOf(host)
	if err == nil {
		err = registries.Check(req)
	}
	if err == nil {
		err = k.CheckLogin(ctx, host, req.Username, req.Password)
	}
	if err != nil {
		return proto.Registry{}, err
	}
	return k.Set(host, req)
}
