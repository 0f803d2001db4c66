package netclients_test

// A client is a program that uses the network and knows of no proxy.
type client struct {
	name string
	// script has the client do its work and print want, in the end.
	script, want string
	// refused has the client reach for refusedHost. It must end by itself with an error.
	refused string
	host    string // that the audit log then has, with the port
	port    uint16
	open    string // the same as host in mode open, where it differs
	asRoot  bool
}

// In scripts, $T is an empty directory and $REPOSITORY the path of the repository at git.test. The files of testdata
// are in /tmp, and the container trusts the authority of the servers.

// ofBase are the clients that the image base has.
var ofBase = []client{
	{name: "curl", script: `curl -sS https://web.test/text`, want: "hello from web.test",
		refused: `curl -sS https://denied.test/`, host: "web.test", port: 443},
	{name: "wget", script: `wget -qO- http://web.test/text`, want: "hello from web.test",
		refused: `wget -qO- http://denied.test/`, host: "web.test", port: 80},
	{name: "npm", script: `cd $T && npm init -y >/dev/null && npm install --silent --registry https://npm.test/ greeting &&
		node -p 'require("greeting")'`, want: "hello from npm",
		refused: `npm view --fetch-retries 0 --registry https://denied.test/ greeting`, host: "npm.test", port: 443},
	{name: "pip", script: `pip install --quiet --target $T --index-url https://pypi.test/simple/ greeting &&
		PYTHONPATH=$T python3 -c 'import greeting; print(greeting.text)'`, want: "hello from pip",
		refused: `pip download --retries 0 --index-url https://denied.test/simple/ greeting`, host: "pypi.test", port: 443},
	{name: "git over https", script: `cd $T && git clone -q https://git.test/greeting.git && cd greeting &&
		git -c user.name=a -c user.email=a@b.test commit -q --allow-empty -m more &&
		git push -q origin HEAD:$(basename $T) && cat README`, want: "hello from git",
		refused: `git clone https://denied.test/greeting.git $T/x`, host: "git.test", port: 443},
	{name: "Node's fetch", script: `node -e 'fetch("https://web.test/text").then(r => r.text()).then(console.log)'`,
		want: "hello from web.test", refused: `node -e 'fetch("https://denied.test/")'`, host: "web.test", port: 443},
	{name: "Python's requests", script: `python3 -c 'import requests; print(requests.get("https://web.test/text").text)'`,
		want:    "hello from web.test",
		refused: `python3 -c 'import requests; requests.get("https://denied.test/text")'`, host: "web.test", port: 443},
	{name: "Go's net/http", script: `/tmp/gofetch https://web.test/text`, want: "hello from web.test",
		refused: `/tmp/gofetch https://denied.test/`, host: "web.test", port: 443},
	{name: "apt", asRoot: true, script: `echo 'deb [trusted=yes] http://apt.test/ ./' >$T/list && chmod 755 $T &&
		apt-get -qq -o Dir::Etc::sourcelist=$T/list -o Dir::Etc::sourceparts=- update &&
		apt-get -qq -o Dir::Etc::sourcelist=$T/list install -y greeting >/dev/null && greeting`, want: "hello from apt",
		refused: `echo 'deb [trusted=yes] http://denied.test/ ./' >$T/list && chmod 755 $T &&
			apt-get -o APT::Update::Error-Mode=any -o Dir::Etc::sourcelist=$T/list -o Dir::Etc::sourceparts=- update`,
		host: "apt.test", port: 80, open: "front.test"}, // it asks for SRV, and the list has one host alone
}

// ofImage are the clients of the image that the directory image defines.
var ofImage = []client{
	{name: "cargo", script: `. /tmp/crate.sh crates.test && cargo run --quiet`, want: "hello from cargo",
		refused: `. /tmp/crate.sh denied.test && cargo fetch`, host: "crates.test", port: 443},
	{name: "go", script: `cd $T && export HOME=$T GOPROXY=https://go.test GOSUMDB=off GOFLAGS=-modcacherw &&
		go mod init x 2>/dev/null && go get example.test/greeting 2>/dev/null &&
		grep -o 'hello from go' $T/go/pkg/mod/example.test/greeting@v1.0.0/greeting.go`, want: "hello from go",
		refused: `cd $T && HOME=$T GOPROXY=https://denied.test GOSUMDB=off go mod download example.test/greeting@v1.0.0`,
		host:    "go.test", port: 443},
	{name: "Java's HttpClient", script: `java /tmp/Fetch.java https://web.test/text`, want: "hello from web.test",
		refused: `java /tmp/Fetch.java https://denied.test/`, host: "web.test", port: 443},
	{name: "aiohttp", script: `python3 /tmp/fetch.py https://web.test/text`, want: "hello from web.test",
		refused: `python3 /tmp/fetch.py https://denied.test/`, host: "web.test", port: 443},
	{name: "Playwright", script: `node /tmp/visit.js https://web.test/`, want: "hello from web.test",
		refused: `node /tmp/visit.js https://denied.test/`, host: "web.test", port: 443},
	{name: "git over ssh", script: ssh + `git clone -q ssh://root@git.test$REPOSITORY $T/x && cd $T/x &&
		git -c user.name=a -c user.email=a@b.test commit -q --allow-empty -m more &&
		git push -q origin HEAD:$(basename $T) && cat README`, want: "hello from git",
		refused: ssh + `git clone ssh://root@denied.test/greeting.git $T/x`, host: "git.test", port: 22},
	{name: "psql", script: `psql -h db.test -U test -d postgres -Atc "select 'hello from ' || 'psql'"`,
		want: "hello from psql", refused: `psql -h denied.test -U test -d postgres -c 'select 1'`, host: "db.test",
		port: 5432},
	{name: "redis-cli", script: `redis-cli -h cache.test SET greeting 'hello from redis' >/dev/null &&
		redis-cli -h cache.test GET greeting`, want: "hello from redis",
		refused: `redis-cli -h denied.test PING`, host: "cache.test", port: 6379},
}

const ssh = `install -m 600 /tmp/key $T/key && export GIT_SSH_COMMAND="ssh -i $T/key -o StrictHostKeyChecking=no ` +
	`-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
`
