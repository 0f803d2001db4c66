package daemon

// Reloadable are the flags whose values a running daemon can change; see Reload.
var Reloadable = []string{"warm-min", "warm-max", "file-quota-bytes", "upstream", "upstream-keys", "upstream-timeout",
	"upstream-idle-timeout"}

// Reload applies what can change of a configuration, and ignores the rest. It reads the file of upstream keys again,
// also if only its content has changed. cfg has passed Check. If Reload fails, nothing has changed.
func (d *Daemon) Reload(cfg Config) error {
	list, err := d.upstreams(cfg)
	if err != nil {
		return err
	}
	if err := d.models.Replace(list); err != nil {
		return err
	}
	d.warmMax.Store(int64(cfg.WarmMax))
	d.machine.host.ResizeWarm(cfg.WarmMin, cfg.WarmMax)
	d.files.SetQuota(cfg.FileQuota)
	return nil
}
