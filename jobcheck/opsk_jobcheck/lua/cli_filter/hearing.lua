-- What the advisor answers, and what of it the user sees.
--@ shared/hearing.lua

-- As many as OPSK_ADVICE=long may want.
local MAX_LINES = 40

local function show(command, answer)
  local out = {}
  for _, line in ipairs(texts(answer.line, MAX_LINES, 400)) do
    out[#out + 1] = command .. ": opsk  " .. line .. "\n"
  end
  if #out > 0 then io.stderr:write(table.concat(out)) end
end
