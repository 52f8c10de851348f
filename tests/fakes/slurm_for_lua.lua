-- Runs a hook as Slurm would: harness.lua PLUGIN SCENARIO. The scenario calls job(), options(), and emit()s what to check.

local said = {}
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294 }
local function collect(kind)
  return function(format, ...)
    said[#said + 1] = kind .. ": " .. string.format(format, ...)
  end
end
slurm.log_user, slurm.log_info, slurm.log_error = collect("user"), collect("info"), collect("error")

function emit(name, value)
  io.stdout:write(name, "\t", (tostring(value):gsub("[%c\\]", function(byte)
    return string.format("\\x%02x", byte:byte())
  end)), "\n")
end

function emit_said()
  for _, line in ipairs(said) do emit("said", line) end
  said = {}
end

-- Like Slurm's userdata: fields by name only, nothing to iterate over.
function opaque(fields)
  return setmetatable({}, {
    __index = fields,
    __newindex = function(_, name, value) fields[name] = value end,
  })
end

function job(fields)
  fields.environment = opaque(fields.environment or {})
  local argv = fields.argv or {}
  local from_zero = {}
  for index, word in ipairs(argv) do from_zero[index - 1] = word end
  fields.argv, fields.argc = opaque(from_zero), #argv
  fields.min_nodes = fields.min_nodes or slurm.NO_VAL
  fields.user_id = fields.user_id or 4711
  return opaque(fields)
end

-- What sbatch, salloc and srun hand to a cli_filter; json is what they would list as set.
function options(fields, json)
  fields.type = fields.type or "sbatch"
  local words = fields.argv or {}
  slurm.json_cli_options = function() return json or '{"gpus-per-node":"8","nodes":"2","argv":[]}' end
  fields.argv = setmetatable({}, { __index = words, __len = function() return #words end })
  return opaque(fields)
end

-- Not before it is needed: it makes the process ignore SIGPIPE, which a hook must see to itself.
local clock
function timed(name, action)
  clock = clock or (pcall(require, "socket.core") and require("socket.core").gettime) or os.clock
  local began = clock()
  local result = action()
  emit(name, string.format("%.1f", (clock() - began) * 1000))
  return result
end

assert(loadfile(arg[1]))()
assert(loadfile(arg[2]))()
