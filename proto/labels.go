package proto

// HasLabels reports whether labels has all that are wanted, with the same values.
func HasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
