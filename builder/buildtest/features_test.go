package buildtest

import (
	"fmt"
	"strings"
	"testing"

	"berth/proto"
)

// A feature is a small Dockerfile in a form that Dockerfiles of real projects have, and what its image must show.
type feature struct {
	name       string
	dockerfile string
	files      map[string]string // of the context, beside the Dockerfile
	change     func(*proto.BuildOptions)
	look       string // a script for a container of the image
	want       string // what the script prints
	logs       string // what the build's output must have
}

// features are the forms that were found in the Dockerfiles of some hundred published modules.
var features = []feature{
	{name: "stages", dockerfile: `# syntax=docker/dockerfile:1
FROM base AS deps
USER root
RUN mkdir /deps && echo one > /deps/one
FROM deps AS build
RUN cat /deps/one > /deps/two
FROM base AS unused
RUN exit 9
FROM base
COPY --from=build /deps/two /two
COPY --from=0 /deps/one /one
`, look: "cat /two /one", want: "one\none\n"},
	{name: "scratch", dockerfile: `FROM base AS build
USER root
RUN mkdir -p /r/bin /r/lib64 && cp /bin/busybox /r/bin/sh 2>/dev/null || cp -L /bin/sh /r/bin/sh
RUN ldd /bin/sh | grep -o '/[^ ]*' | while read f; do mkdir -p /r$(dirname $f); cp -L $f /r$f; done; ls -R /r
FROM scratch AS out
COPY --from=build /r/ /
COPY --from=build /bin/cat /bin/cat
RUN ["/bin/sh", "-c", "echo from-scratch > /made"]
FROM out
`, look: "read x < /made; echo $x", want: "from-scratch\n"},
	{name: "copy flags", dockerfile: `FROM base AS src
FROM base
USER root
RUN mkdir -p /link-target && ln -s /link-target /via
COPY --chmod=0755 run.sh /usr/local/bin/run
COPY --chmod=u=rw,go= secret.txt /s
COPY --chown=33:44 run.sh /c
COPY --chown=www-data:games run.sh /named
COPY --link --chmod=755 run.sh /linked/run
COPY --from=src --chown=1000 --link /etc/hostname /h
COPY --exclude=*.md --exclude=sub/skip tree/ /tree/
COPY --parents tree/./sub/a.txt tree/b.md /parents/
COPY run.sh tree/b.md /via/
COPY ["a b.txt", "/with space/"]
`, files: map[string]string{"run.sh": "#!/bin/sh\necho ran\n", "secret.txt": "x", "tree/b.md": "b",
		"tree/sub/a.txt": "a",
		"tree/sub/skip":  "s", "a b.txt": "ab\n"},
		look: `run; /linked/run; cd /; stat -c '%a %u %g' s c; stat -c '%U %G' named; stat -c %u h; (cd tree; find . -type f)
(cd parents; find . -type f | sort); ls link-target; cat "/with space/a b.txt"`,
		want: "ran\nran\n600 0 0\n644 33 44\nwww-data games\n1000\n./sub/a.txt\n" +
			"./sub/a.txt\n./tree/b.md\nb.md\nrun.sh\nab\n"},
	{name: "arguments", dockerfile: `ARG IMAGE=nosuch
ARG TAG=1
FROM --platform=$BUILDPLATFORM ${IMAGE}:${TAG} AS build
ARG TAG
ARG TARGETOS
ARG TARGETPLATFORM
ARG PLAIN=plain
ARG EMPTY
ENV A=${PLAIN} B=${EMPTY:-fallback} C=${PLAIN:+set} D=a\ b E=$A
ENV OLD style value
ENV PATH=/opt/x:$PATH F=${PLAIN%in} G=${PLAIN/pl/PL} H=\$PLAIN
USER root
WORKDIR /w
WORKDIR ${PLAIN}/deeper
RUN echo "$TAG $TARGETOS $TARGETPLATFORM $A $B $C $D $E $OLD $F $G $H $PWD" > /out
`, change: func(o *proto.BuildOptions) { o.Args = map[string]string{"IMAGE": registryHost + "/berth/base"} },
		look: `cut -d' ' -f1,2,4- /out; echo ${PATH%%:*} $A "[$E]"`,
		want: "1 linux plain fallback set a b  style value pla PLain $PLAIN /w/plain/deeper\n/opt/x plain []\n"},
	{name: "heredocs", dockerfile: `FROM base
USER root
RUN <<EOF
set -e
cd /tmp
echo "shell $HOME" > /one
EOF
RUN <<-'EOT'
	echo 'tab $HOME' > /two
EOT
RUN python3 <<EOF
open("/three", "w").write("python\n")
EOF
RUN <<EOF cat > /four
piped
EOF
COPY <<EOF <<"RAW" /five/
in $PATH_OF
EOF
raw $PATH_OF
RAW
RUN <<EOF
#!/usr/bin/env python3
import sys
open("/six", "w").write("shebang %d\n" % sys.version_info[0])
EOF
ENV X=1
`, look: "cat /one /two /three /four /five/EOF /five/RAW /six",
		want: "shell /root\ntab $HOME\npython\npiped\nin \nraw $PATH_OF\nshebang 3\n"},
	{name: "mounts", dockerfile: `FROM base AS tools
USER root
RUN mkdir /t && echo tool > /t/tool
FROM base
USER root
WORKDIR /src
RUN --mount=target=. cat src/a.txt > /bind && echo x > /dev/null
RUN --mount=type=bind,target=/rw,rw echo gone > /rw/new && cat /rw/new > /rw-out
RUN --mount=from=tools,source=/t,target=/mnt/t cat /mnt/t/tool > /from
RUN --mount=type=cache,id=c1,target=/cache,sharing=locked,mode=0700,uid=33,gid=44 stat -c '%a %u %g' /cache > /c
RUN --mount=type=cache,target=/root/.cache --mount=type=cache,target=/other,from=tools,source=/t \
    ls /other > /seeded && echo 1 > /root/.cache/x
RUN --mount=type=tmpfs,target=/fast,size=16m df /fast | tail -1 | cut -d' ' -f1 > /tmp-kind
RUN --mount=type=secret,id=none,required=false test ! -e /run/secrets/none
RUN --mount=type=ssh,required=false test ! -S "$SSH_AUTH_SOCK"
RUN --network=none --mount=type=bind,source=src/a.txt,target=/one/file cat /one/file > /file
`, files: map[string]string{"src/a.txt": "a\n"},
		look: "cat /bind /rw-out /from /c /seeded /tmp-kind /file; ls -d /src /cache /other 2>/dev/null",
		want: "a\ngone\ntool\n700 33 44\ntool\ntmpfs\na\n/src\n"},
	{name: "on build", dockerfile: `FROM base AS parent
USER root
ONBUILD COPY app.txt /app.txt
ONBUILD RUN echo onbuild >> /app.txt
ONBUILD ARG LATE=late
FROM parent
RUN echo "$LATE" >> /app.txt
`, files: map[string]string{"app.txt": "app\n"}, look: "cat /app.txt", want: "app\nonbuild\nlate\n"},
	{name: "configuration", dockerfile: `FROM base
LABEL one=1 "two words"="a b" \
      three='3'
MAINTAINER somebody <a@example.com>
EXPOSE 80 443/tcp 53/udp 8000-8002
VOLUME ["/data", "/with space"]
VOLUME /more /yet
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s --timeout=3s --start-period=1s --start-interval=1s --retries=3 \
  CMD curl -f http://localhost/ || exit 1
HEALTHCHECK NONE
SHELL ["/bin/bash", "-eo", "pipefail", "-c"]
USER root
RUN [[ -n $BASH_VERSION ]] && echo bash > /shell
ENTRYPOINT ["/usr/bin/env"]
CMD []
`, look: "cat /shell", want: "bash\n"},
	{name: "volumes", dockerfile: `FROM base
USER root
RUN mkdir /data && echo before > /data/a
VOLUME /data
RUN echo after > /data/b
`, look: "cat /data/a /data/b", want: "before\nafter\n"},
	{name: "ADD of archives", dockerfile: `FROM base
USER root
ADD files.tar /plain/
ADD files.tar.gz files.tar.xz /packed/
ADD --unpack=false files.tar /kept/
COPY files.tar /copied/
ADD --chown=33:44 a.txt /owned
`, files: map[string]string{"files.tar": string(tarOf("in/x", "plain\n")),
		"files.tar.gz": packed("gzip", "in/y", "gz\n"),
		"files.tar.xz": packed("xz", "in/z", "xz\n"), "a.txt": "a"},
		look: "cd /; cat plain/in/x packed/in/y packed/in/z; ls kept copied; stat -c '%u %g' owned",
		want: "plain\ngz\nxz\ncopied:\nfiles.tar\n\nkept:\nfiles.tar\n33 44\n"},
	{name: "ADD of an address", dockerfile: `FROM base
ARG FROM_HOST
ARG SUM
USER root
ADD ${FROM_HOST}/file.txt /dir/
ADD --checksum=sha256:${SUM} --chmod=604 ${FROM_HOST}/file.txt /checked
ADD ${FROM_HOST}/in.tar /archive.tar
ADD --unpack=true ${FROM_HOST}/in.tar /unpacked/
`, change: func(o *proto.BuildOptions) {
		o.Args = map[string]string{"FROM_HOST": filesURL, "SUM": sumOf("served\n")}
		o.Network.Mode = proto.NetworkOpen
	}, look: "cd /; cat checked unpacked/in/w; stat -c '%a %U' checked dir/file.txt; ls -d archive.tar",
		want: "served\nw\n604 root\n600 root\narchive.tar\n"},
	{name: "ignored files", dockerfile: `FROM base
COPY . /ctx
COPY docs/*.md /docs/
`, files: map[string]string{".dockerignore": "# a comment\n*\n!docs\n!src/**/*.go\ndocs/private\n**/*_test.go\n",
		"docs/a.md": "a", "docs/private/p.md": "p", "src/x/y.go": "y", "src/x/y_test.go": "t", "other": "o"},
		look: "cd /ctx; find . -type f | sort; ls /docs", want: "./docs/a.md\n./src/x/y.go\na.md\n"},
	{name: "own ignore file", dockerfile: "", files: map[string]string{"build/App.dockerfile": "FROM base\nCOPY . /ctx\n",
		"build/App.dockerfile.dockerignore": "secret\nbuild\n", ".dockerignore": "kept\n", "kept": "k", "secret": "s"},
		change: func(o *proto.BuildOptions) { o.Dockerfile = "build/App.dockerfile" },
		look:   "ls /ctx", want: "kept\n"},
	{name: "users", dockerfile: `FROM base
USER root
RUN groupadd -g 3000 team && useradd -u 3001 -g team -m -d /home/dev -s /bin/bash dev && \
    install -d -o dev -g team /app
USER dev
WORKDIR /app/made
RUN id -un > /app/who && id -gn >> /app/who && echo "$HOME" >> /app/who && touch ~/mine
COPY --chown=dev:team a.txt .
USER 3001:0
RUN id -g >> /app/who
`, files: map[string]string{"a.txt": "a"},
		look: "cat /app/who; stat -c '%U %G' /app/made/a.txt /home/dev/mine",
		want: "dev\nteam\n/home/dev\n0\ndev team\ndev team\n"},
	{name: "other images", dockerfile: `ARG REG
FROM ${REG}/berth/base:1 AS a
FROM base
USER root
ARG REG
COPY --from=a /etc/hostname /one
RUN --mount=from=base,source=/etc,target=/mnt/etc cat /mnt/etc/debian_version > /two
`, change: func(o *proto.BuildOptions) { o.Args = map[string]string{"REG": registryHost} },
		look: "cut -d. -f1 /two", want: "12\n"},
	{name: "escape", dockerfile: "# escape=`\nFROM base\nUSER root\nRUN echo a\\b `\n  > /out\n",
		look: "wc -l < /out", want: "1\n"},
	{name: "comments and continuations", dockerfile: `# check=skip=all
FROM base
USER root
RUN echo one > /out && \
    # between two lines
    echo two >> /out \

    && echo three >> /out
run echo lower >> /out
`, look: "cat /out", want: "one\ntwo\nthree\nlower\n"},
	{name: "lines of Windows", dockerfile: "FROM base\r\nUSER root\r\nRUN echo one > /out && \\\r\n  echo two >> /out\r\n",
		look: "cat /out", want: "one\ntwo\n"},
	{name: "a stage as target", dockerfile: `FROM base AS one
ENV STAGE=one
FROM one AS two
RUN exit 5
`, change: func(o *proto.BuildOptions) { o.Target = "one" }, look: "echo $STAGE", want: "one\n"},
	{name: "processes in the background", dockerfile: `FROM base
USER root
RUN sleep 3600 & echo started > /out
RUN (setsid sleep 3600 >/dev/null 2>&1 &) ; mkdir -p /run/x && mkfifo /run/x/pipe && ln -s /out /run/x/l
`, look: "cat /run/x/l; test -p /run/x/pipe && echo pipe", want: "started\npipe\n"},
	{name: "changes of the base", dockerfile: `FROM base
USER root
RUN rm -rf /usr/share/doc /etc/debian_version && mkdir /etc/debian_version && mv /etc/hostname /etc/hostname2; \
    echo new > /new1 && ln /new1 /new2; echo '127.0.0.1 build.local' >> /etc/hosts; true
RUN rmdir /etc/debian_version && chmod 2770 /srv && truncate -s 64M /sparse
`, look: "ls -d /usr/share/doc /etc/debian_version 2>/dev/null; stat -c %a /srv; stat -c %s /sparse; stat -c %h /new1",
		want: "2770\n67108864\n2\n"},
	{name: "output and warnings", dockerfile: `from base as Upper
RUN printf 'no newline'; printf '\033[31mred\033[0m\n'; echo err >&2; printf '\377\n'
`, look: "true", logs: "no newline"},
	{name: "a frontend of one's own", dockerfile: "# syntax=docker.io/docker/dockerfile-upstream:master-labs\n" +
		"FROM base\n" +
		"COPY --parents --exclude=x ./a/b /\n", files: map[string]string{"a/b": "b\n"}, look: "cat /a/b", want: "b\n"},
}

// TestFeatures builds each of the Dockerfiles twice, the second time from the cache, and looks into a container.
func TestFeatures(t *testing.T) {
	c := connect(t, daemon)
	for i, f := range features {
		t.Run(f.name, func(t *testing.T) {
			o := proto.BuildOptions{Name: fmt.Sprintf("feature-%d", i)}
			if f.change != nil {
				f.change(&o)
			}
			files := map[string]string{}
			for name, text := range f.files {
				files[name] = text
			}
			if f.dockerfile != "" {
				files["Dockerfile"] = f.dockerfile
			}
			img, first, err := build(t.Context(), c, o, contextOf(t, files), nil)
			if err != nil {
				t.Fatalf("%v; output %q", err, first.logs)
			}
			if !strings.Contains(first.logs, f.logs) {
				t.Errorf("output %q lacks %q", first.logs, f.logs)
			}
			if got := runIn(t, c, img.Name, f.look); got != f.want {
				t.Errorf("in a container:\n%s\nnot\n%s\noutput of the build: %s", got, f.want, first.logs)
			}
			again, second, err := build(t.Context(), c, o, contextOf(t, files), nil)
			if err != nil || again.Digest != img.Digest || second.ran != 0 {
				t.Errorf("from the cache: %v, %+v", err, second)
			}
		})
	}
}
