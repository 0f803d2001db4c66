a=(1 "two words" 3); echo "${#a[@]}" "${a[1]}" "${a[@]:1}"; declare -A m=([k]=v [x]=y); echo "${m[k]}" "${!m[@]}" | tr ' ' '\n' | sort
p=/usr/lib/file.tar.gz; echo "${p##*/}" "${p%%.*}" "${p/lib/LIB}" "${p//[aeiou]/_}" "${p:5:3}" "${p: -2}"
echo {1..5} {a..e..2} {01..03} x{a,b}y ~+ | sed "s,$PWD,.,"; echo "${u:-default}" "${u:=set}" "$u" "${v+unset}"; (echo "${none:?is needed}"); echo $?
set -- "a b" c; echo $# "$@" "$*"; IFS=,; echo "$*"; unset IFS; f() { local x=1; echo "$FUNCNAME $1 $#"; return 5; }; f arg; echo $?
case foo.txt in *.md) echo md;; *.txt) echo txt;; esac; [[ abc =~ ^a(.)c$ ]] && echo "${BASH_REMATCH[1]}"; [[ a < b ]] && echo less; test 1 -eq 01 && echo eq
echo *.none; shopt -s nullglob; echo *.none end; shopt -s extglob; echo "${p//@(usr|lib)/}"; eval 'echo $((3 + 4))'; echo $'a\tb\x41\u00e9'; printf '%s\n' "$(printf 'trailing\n\n\n')" | wc -l
