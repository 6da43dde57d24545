# Needs Python 3.11 or newer; cargo is used where it is there.
# ARGS go to the command: make test ARGS="-k kernel"

ifeq ($(wildcard pyproject.toml),)
$(error this is not the folder of mrflight: go into the clone, or name it: make -C CLONE)
endif

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
ARGS ?=

venv := .venv
python := $(venv)/bin/python
pip := $(python) -m pip install --quiet --disable-pip-version-check
cargo := $(shell command -v cargo 2>/dev/null)
installed := $(venv)/.installed
installed_for_demo := $(venv)/.demo
installed_for_docs := $(venv)/.docs
package := $(venv)/.package$(if $(cargo),-with-kernel)
link := $(venv)/editable/mrflight
minio := .services/bin/minio
hdfs := .services/hdfs.classpath
kafka := .services/kafka.classpath
hopsfs := .services/hopsfs/.installed
iceberg := .services/iceberg.classpath
duckdb := .services/duckdb/.installed
spark := .services/spark/.installed
ducklake := .services/ducklake/.installed
validators := .services/validators/.installed
kuberay := .services/validators/rayjobs.yaml
wheels := build/wheels/.installed
go := $(shell command -v go 2>/dev/null)
java := $(shell command -v java 2>/dev/null)
maven := $(and $(java),$(shell command -v mvn 2>/dev/null))
kernel := $(wildcard kernel/Cargo.* kernel/src/*.rs)

# Tests and measurements start hundreds of processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo services test soak flakes test-on-ray messages bench microbench check docs format constraints wheels clean \
	prepared apt-packages

install: $(installed) $(link)

# Programs in an environment name the folder that it was made in, and its Python may have been removed.
ifneq ($(wildcard $(venv)),)
ifeq ($(filter clean,$(MAKECMDGOALS)),)
ifeq ($(shell $(python) -c 'import pip' 2>/dev/null && { ! grep -q '^command = ' $(venv)/pyvenv.cfg || grep -qF ' $(CURDIR)/$(venv)' $(venv)/pyvenv.cfg; } && echo whole),)
$(error $(venv) does not work: its Python or pip is gone, or the folder was moved. Remove it, and run make again: rm -rf $(venv))
endif
endif
endif

$(python):
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer was found: install one, or name one: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) does not run, or is older than Python 3.11: name another one: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(venv) || { rm -rf $(venv); exit 1; }

# What pip is to install for the extras that follow.
requirements = $(python) -c 'import sys, tomllib; \
	project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	extras = project["optional-dependencies"]; \
	print(*project["dependencies"], *(each for name in sys.argv[1:] for each in extras[name]), sep="\n")'

$(installed): extras := avro delta hdfs iceberg kafka protobuf ray-data s3 tls sql bench dev
$(installed_for_demo): extras := delta sql

# Where packages are installed.
purelib := import sysconfig; print(sysconfig.get_path("purelib"))

# By this name, `make -n` does not run it.
submake := $(MAKE)

# The kernel is compiled while the dependencies are downloaded, and not again for the other extras.
$(installed) $(installed_for_demo): pyproject.toml setup.py constraints.txt $(kernel) $(if $(wildcard $(package)),,FORCE) | $(python)
	@echo "installing mrflight into $(venv), with $(extras)"
	@$(requirements) $(extras) > $@.txt
	@$(pip) -c constraints.txt -r $@.txt & dependencies=$$!; \
		MAKEFLAGS= $(submake) --silent --no-print-directory $(package); built=$$?; wait $$dependencies && exit $$built
	@$(python) -c 'from mrflight.compute.kernel import implementation as by; print("installed; the kernel is in", by.title())'
	@$(if $(cargo),:,echo "It is slower than the one in Rust: install cargo (https://rustup.rs), and run make again")
	@touch $@

$(package): pyproject.toml setup.py $(kernel) | $(python)
	@$(pip) --no-deps -e .
	@rm -f $(venv)/.package*
	@touch $@

FORCE:

# From the folder that a clone named mrflight lies in Python would take the clone for the package: an
# editable install is looked at last. A package on the path comes before a folder without
# __init__.py, and of the clone nothing else is to be on the path.
$(link): | $(python)
	mkdir -p $(@D)
	echo "$(CURDIR)/$(@D)" > "$$($(python) -c '$(purelib)')/mrflight.pth"
	ln -sfn ../../mrflight $@

# What `make install` has installed is more than a demo needs.
demo: $(or $(wildcard $(installed)),$(installed_for_demo)) $(link)
	$(python) examples/clicks/generate.py
	$(python) -m mrflight.driver examples/clicks/job.toml $(ARGS)
	@echo
	@echo "made:    the clicks of each site, a Delta table in examples/clicks/out/clicks"
	@echo "look:    $(venv)/bin/mrflight sql \"select url, clicks from 'examples/clicks/out/clicks' order by clicks desc limit 5\""
	@echo "go on:   docs/tutorial/first-job.md, or change examples/clicks/job.toml and run make demo again"

# The servers that tests start, and the environment of HopsFS's client: all, or those that SERVICES
# names, two at a time. What there are no tools for is left out: its tests are skipped and say what to
# install, and fail in CI.
SERVICES ?= minio hdfs hopsfs kafka duckdb iceberg ducklake postgres spark chromium promtool validators
minio_file := $(if $(go),$(minio))
hdfs_file := $(if $(maven),$(hdfs))
kafka_file := $(if $(maven),$(kafka))
hopsfs_file := $(hopsfs)
duckdb_file := $(duckdb)
iceberg_file := $(if $(maven),$(iceberg))
spark_file := $(if $(java),$(spark))
ducklake_file := $(ducklake)
validators_file := $(if $(go),$(kuberay))
files := $(foreach service,$(SERVICES),$($(service)_file))
# Programs of Debian, which only root can install; elsewhere tests say which package has them.
apt := $(if $(filter 0,$(shell id -u)),$(shell command -v apt-get 2>/dev/null))
chromium_package := $(if $(shell command -v chromium 2>/dev/null),,chromium)
postgres_package := $(if $(wildcard /usr/lib/postgresql/*/bin/initdb),,postgresql)
promtool_package := $(if $(shell command -v promtool 2>/dev/null),,prometheus)
packages := $(strip $(foreach service,$(SERVICES),$($(service)_package)))
without_go := $(if $(go),,$(filter minio validators,$(SERVICES)))
without_java := $(if $(java),,$(filter spark,$(SERVICES)))
without_maven := $(if $(maven),,$(filter hdfs kafka iceberg,$(SERVICES)))

services: $(if $(filter hopsfs,$(SERVICES)),$(installed))
	+@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j2) prepared SERVICES="$(SERVICES)"

prepared: $(files) $(if $(and $(apt),$(packages)),apt-packages)
	@$(if $(without_go),echo "there is no Go: $(without_go) left out",:)
	@$(if $(without_java),echo "there is no Java: $(without_java) left out",:)
	@$(if $(without_maven),echo "there is no Java or no Maven: $(without_maven) left out",:)
	@$(if $(apt),:,$(if $(packages),echo "left to root: apt-get install $(packages)",:))

# A MinIO that was built is kept for other clones, in the cache of the user.
cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mrflight-services

$(minio): tests/services/minio.txt
	@mkdir -p $(@D)
	@version="$$(cat $<)"; kept="$(cache)/$$(basename "$$version")-$$(uname -m)"; set -e; \
	if [ ! -x "$$kept" ]; then \
		echo "MinIO is built, which takes some minutes, once"; \
		GOBIN="$(CURDIR)/$(@D)" go install "$$version"; \
		mkdir -p "$(cache)" && cp $@ "$$kept.$$$$" && mv "$$kept.$$$$" "$$kept" || true; \
	else \
		cp "$$kept" $@.new; mv $@.new $@; \
	fi
	@touch $@

# Maven's own cache is not for two that fill it.
$(kafka): | $(filter $(hdfs),$(files))
$(iceberg): | $(filter $(hdfs) $(kafka),$(files))

$(hdfs): tests/services/pom.xml
$(kafka): tests/services/kafka-pom.xml
$(hdfs) $(kafka):
	mkdir -p $(@D)
	mvn --quiet --batch-mode --file $< dependency:build-classpath -Dmdep.outputFile="$(CURDIR)/$@.new"
	mv $@.new $@

# DuckDB's extension for Iceberg is not on PyPI for the newest DuckDB.
$(duckdb): tests/services/duckdb.txt
	mkdir -p $(@D)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(iceberg): tests/services/iceberg_pom.xml
	mkdir -p $(@D)
	mvn --quiet --batch-mode --file $< dependency:build-classpath -Dmdep.outputFile="$(CURDIR)/$@.new"
	mv $@.new $@

# mrflight[hopsfs] has an environment of its own, as hops-deltalake has the import name of deltalake.
# The package is linked as it is in $(venv): for another Python cargo would compile the kernel again.
$(hopsfs): pyproject.toml constraints.txt $(installed)
	mkdir -p $(@D)
	$(PYTHON) -m venv --clear $(@D)
	@$(requirements) hopsfs > $@.txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $@.txt
	cp -r "$$($(python) -c '$(purelib)')"/*mrflight[-_]* "$$($(@D)/bin/python -c '$(purelib)')"
	@touch $@

# PySpark wants older versions of what mrflight uses.
$(spark): tests/services/spark.txt
	mkdir -p $(@D)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# The extensions of DuckDB on PyPI are for an older DuckDB than the one that mrflight is tested with.
$(ducklake): tests/services/ducklake.txt
	mkdir -p $(@D)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Linters and schemas for the files of deploy/. The schema of a RayJob is in the Go module of KubeRay.
$(validators): tests/services/validators.txt
	mkdir -p $(@D)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(kuberay): tests/services/kuberay.txt $(validators)
	cd $(@D) && go mod download -json "$$(cat $(CURDIR)/$<)" | sed -n 's/^.*"Dir": "\(.*\)",$$/\1/p' > kuberay.folder
	install -m 644 "$$(cat $(@D)/kuberay.folder)/config/crd/bases/ray.io_rayjobs.yaml" $@

apt-packages:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(packages)

# Tests wait much of their time, so there are more workers than cores. tests/support/suite/schedule.py divides the
# tests. `make test` runs the quick ones on what is installed, and one of each foreign server that is prepared;
# `make test ALL=1` prepares the servers and runs everything. With ARGS the tests run in one process, in order, and
# only the servers that they ask for are prepared.
workers := --numprocesses 4 --dist loadgroup
ALL ?=
all := $(filter 1,$(ALL))

test: install $(if $(strip $(ARGS)),,$(if $(all),services))
ifeq ($(strip $(ARGS)),)
	$(python) -m pytest $(workers) -m '$(if $(all),not soak,quick or smoke)' $(if $(all),--write-durations) tests
else
	$(python) -m pytest --build-services $(ARGS)
endif

# What finds more only with time, for so many minutes: chaos, random queries and jobs, a thousand examples of each
# property, and the smoke tests of the experiments. Its seed is today's date, or SEED.
MINUTES ?= 60
SEED ?= $(shell date +%Y%m%d)
soak: install services
	$(python) -m pytest $(workers) -m 'soak or hypothesis' --minutes $(MINUTES) --seed $(SEED) \
		--hypothesis-seed $(SEED) --hypothesis-profile thorough $(ARGS) tests

# The tests that have failed without a reason, twenty times: tests/flakes.txt. Five rounds with a stall of 3 s
# wherever a test waits, and five beside ten busy processes. ARGS="--rounds 4" for fewer.
flakes: install services
	$(python) -m tests.support.suite.flakes $(ARGS)

# All tests whose jobs can run over the other executor: those with the mark runs_on_ray. Half an hour.
test-on-ray: install services
	$(python) -m pytest --numprocesses 2 --dist loadfile --all-on-ray -m 'not soak' tests

# The table of messages, written anew; look at its difference before you commit it.
messages: install
	$(python) -m pytest --rewrite-messages $(ARGS)

# Small measurements of the hot paths, compared with the last run that was saved, in .benchmarks.
# ARGS="--benchmark-compare-fail=min:10%" fails where one became slower.
microbench: install
	$(python) -m pytest tests/benchmarks -p no:xdist -p no:cacheprovider --benchmark-autosave \
		--benchmark-compare --benchmark-sort=fullname --benchmark-columns=min,median,rounds $(ARGS)

bench: install
	$(python) -m experiments.peers --jobs clicks-unique,clicks-10,zipf \
		--engines mrflight,duckdb,polars,datafusion $(ARGS)

check: install
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy --strict mrflight servers
	@if command -v cargo >/dev/null; then \
		set -x; cd kernel && cargo fmt --check && cargo clippy --locked --release -- -D warnings; \
	elif [ "$$CI" = true ]; then \
		echo "cargo is not there, and CI checks the kernel as well" >&2; exit 1; \
	else \
		echo "cargo is not there: the kernel is not checked"; \
	fi

# The site of docs/, in build/site. A broken link or anchor is an error.
docs: $(installed_for_docs)
	$(venv)/bin/zensical build --clean --strict --config-file mkdocs.yml
	@echo "built: build/site/index.html"

$(installed_for_docs): pyproject.toml constraints.txt | $(python)
	@$(requirements) docs > $@.txt
	@$(pip) -c constraints.txt -r $@.txt
	@touch $@

format: install
	$(python) -m ruff check --fix .
	$(python) -m ruff format .
	@! command -v cargo >/dev/null || (cd kernel && cargo fmt)

# The newest versions that pyproject.toml allows, for every Python that it allows. Without the
# peers, some of which want older versions of what we use.
constraints:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
	{ echo "# The versions that mrflight is tested with. Made by \`make constraints\`."; \
		build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --extra avro --extra delta --extra hdfs --extra iceberg --extra kafka --extra protobuf --extra ray --extra ray-data --extra s3 --extra tls --extra hopsfs --extra sql --extra bench --extra dev --extra docs \
			--no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml; \
	} > build/constraints.txt
	mv build/constraints.txt constraints.txt

# What is published, in dist: an sdist, and a wheel with the kernel for each processor that Rust's
# library is there for. rustup is asked for that of the other one.
wheels: $(wheels)
	-@! command -v rustup >/dev/null || rustup --quiet target add aarch64-unknown-linux-gnu
	$(<D)/bin/python deploy/wheels.py --into dist $(ARGS)

$(wheels): deploy/wheels.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

clean:
	rm -rf $(venv) .services build dist mrflight.egg-info kernel/target mrflight/_kernel.*so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf examples/*/visits examples/*/logs examples/*/data examples/*/out
