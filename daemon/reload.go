package daemon

// Reloadable are the flags whose values a running daemon can change; see Reload.
var Reloadable = []string{"warm-min", "warm-max", "file-quota-bytes"}

// Reload applies what can change of a configuration, and ignores the rest. cfg has passed Check.
func (d *Daemon) Reload(cfg Config) {
	d.warmMax.Store(int64(cfg.WarmMax))
	d.machine.host.ResizeWarm(cfg.WarmMin, cfg.WarmMax)
	d.files.SetQuota(cfg.FileQuota)
}
