package loopback

import "strings"

// ProxyPort is the port of the proxy on the container's loopback. It never changes, since running commands have it in
// their environment.
const ProxyPort = 3128

// proxyVariables tell programs about the proxy. Libraries differ in which they read, and some read one case only.
var proxyVariables = map[string]string{
	"HTTP_PROXY": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://127.0.0.1:3128", "ALL_PROXY": "http://127.0.0.1:3128",
	"NO_PROXY": "localhost,127.0.0.1,::1",
}

// AddProxy adds these variables to an environment, except those it has in either case.
func AddProxy(env map[string]string) {
	for name, value := range proxyVariables {
		lower := strings.ToLower(name)
		_, said := env[name]
		if _, also := env[lower]; !said && !also {
			env[name], env[lower] = value, value
		}
	}
}
